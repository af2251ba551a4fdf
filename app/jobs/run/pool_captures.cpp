#include "app/jobs/run/pool_captures.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "app/jobs/run/run_parts.h"
#include "app/jobs/run/shard_files.h"
#include "capture/run_setting.h"
#include "storage/run_records.h"

namespace draftscope {
namespace {

using nlohmann::json;

/// The runs that become one, in the order of the files.
struct Group {
    std::string role;
    std::vector<RunRecords> runs;
};

Result<std::vector<Group>> read_groups(const std::vector<std::string>& files) {
    std::vector<Group> groups;
    for (const std::string& file : files) {
        DS_ASSIGN(std::vector<RunRecords> runs, read_run_records(file));
        if (runs.empty()) return bad_input("{}: has no run", file);
        for (RunRecords& run : runs) {
            const std::string role = describe_part(run.started.run).role;
            const auto found = std::find_if(groups.begin(), groups.end(),
                                            [&](const Group& group) { return group.role == role; });
            Group& group = found != groups.end() ? *found : groups.emplace_back(Group{role, {}});
            group.runs.push_back(std::move(run));
        }
    }
    return groups;
}

Status check_settings(const Group& group) {
    const RunRecords& first = group.runs.front();
    for (const RunRecords& run : group.runs) {
        const std::string difference = part_difference(first.started.run, run.started.run);
        if (difference.empty()) continue;
        return bad_input("{} and {} can't be pooled: their runs ({}) differ in {}", first.file, run.file,
                         group.role, difference);
    }
    return {};
}

/// Checks that every shard is there, in one file only. A shard may lack the conversations of the baseline.
Status check_shards(const std::vector<Group>& groups) {
    ShardFiles files;
    std::set<std::pair<int, std::string>> known;
    const int count = describe_part(groups.front().runs.front().started.run).shard.count;
    for (const Group& group : groups)
        for (const RunRecords& run : group.runs) {
            const Shard shard = describe_part(run.started.run).shard;
            if (known.emplace(shard.index, run.file).second) DS_TRY(files.add(shard, run.file));
        }
    return files.check_all(count, "capture");
}

/// Checks that every conversation of the whole was decoded once.
Status check_conversations(const Group& group) {
    const std::size_t total = describe_part(group.runs.front().started.run).conversations;
    std::map<int, const RunRecords*> decoded;  // by the ordinal of the first turn
    std::size_t skipped = 0;
    for (const RunRecords& run : group.runs) {
        skipped += describe_part(run.started.run).skipped;
        const Shard shard = describe_part(run.started.run).shard;
        if (run.ended != RunEnd::ok)
            return bad_input("{} in {} is incomplete: a run ({}) was {}; finish it with --resume",
                             shard_text(shard), run.file, group.role,
                             run.ended == RunEnd::live ? "killed or is being written" : to_text(run.ended));
        std::set<int> own;
        for (const PromptRow& prompt : run.prompts()) own.insert(prompt.ordinal - prompt.turn);
        for (const int first : own) {
            const auto [known, is_new] = decoded.emplace(first, &run);
            if (!is_new)
                return bad_input("{} and {} have the same conversation ({}, prompt {}); name each run once",
                                 known->second->file, run.file, group.role, first);
        }
    }
    if (total == 0 || decoded.size() + skipped == total) return {};
    return bad_input("{}: {} of {} conversations are missing ({}); finish the captures with --resume",
                     group.runs.front().file, total - skipped - decoded.size(), total, group.role);
}

/// Returns the description of the whole run.
RunRow describe_whole(const Group& group) {
    RunRow row = group.runs.front().started.run;
    for (const RunRecords& run : group.runs)
        row.started_utc = std::min(row.started_utc, run.started.run.started_utc);
    json config = json::parse(row.config_json, nullptr, false);
    if (!config.is_object()) return row;
    const Shard shard = describe_part(row).shard;
    config["pooled"] = {{"shards", shard.count}, {"runs", group.runs.size()}};
    config[std::string(shard_key)] = nullptr;
    int skipped = 0;
    for (const RunRecords& run : group.runs) skipped += describe_part(run.started.run).skipped;
    config[skipped_key] = skipped;
    if (std::string command = config.value("command", ""); !command.empty()) {
        const std::string option = fmt::format(" --shard {}/{}", shard.index, shard.count);
        if (const std::size_t at = command.find(option); at != std::string::npos)
            command.erase(at, option.size());
        config["command"] = command;
    }
    row.config_json = config.dump(-1, ' ', false, json::error_handler_t::replace);
    return row;
}

}  // namespace

Result<PoolReport> pool_captures(const std::string& out, const std::vector<std::string>& files) {
    DS_ASSIGN(std::vector<Group> groups, read_groups(files));
    PoolReport report;
    std::vector<JoinedRun> whole;
    for (const Group& group : groups) DS_TRY(check_settings(group));
    DS_TRY(check_shards(groups));
    for (Group& group : groups) {
        DS_TRY(check_conversations(group));
        report.parts += group.runs.size();
        RunRow row = describe_whole(group);
        whole.push_back({std::move(row), std::move(group.runs)});
    }
    report.runs = whole.size();
    DS_TRY(write_joined(out, std::move(whole)));
    return report;
}

}  // namespace draftscope
