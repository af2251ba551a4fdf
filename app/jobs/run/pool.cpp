#include "app/jobs/run/pool.h"

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "capture/run_setting.h"
#include "stats/comparable.h"
#include "storage/run_records.h"

namespace draftscope {
namespace {

using nlohmann::json;

json parse_config(const RunRow& run) {
    json config = json::parse(run.config_json, nullptr, false);
    return config.is_object() ? config : json::object();
}

json value_of(const json& config, std::string_view key) {
    const auto found = config.find(key);
    return found == config.end() ? json() : *found;
}

std::string to_shown(const json& value) {
    return value.is_string() ? value.get<std::string>() : value.dump();
}

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
Status check_all_shards(const std::vector<Group>& groups) {
    std::vector<ShardFile> shards;
    for (const Group& group : groups)
        for (const RunRecords& run : group.runs) {
            const Shard shard = describe_part(run.started.run).shard;
            const auto is_same = [&](const ShardFile& one) {
                return one.shard.index == shard.index && one.file == run.file;
            };
            if (std::ranges::none_of(shards, is_same)) shards.push_back({shard, run.file});
        }
    return sort_shards(shards, "capture");
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
    json config = parse_config(row);
    if (config.empty()) return row;
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

RunPart describe_part(const RunRow& run) {
    const json config = parse_config(run), bench = value_of(config, bench_key);
    RunPart part;
    part.role = is_baseline(run) ? "baseline" : "run";
    if (bench.is_object())
        part.role = bench_role(bench.value("method", ""), bench.value("repetition", 0),
                               bench.value("control", false));
    if (const json shard = value_of(config, shard_key); shard.is_object())
        part.shard = {shard.value("index", 1), shard.value("count", 1)};
    part.conversations = config.value("conversations", 0);
    part.skipped = config.value(skipped_key, 0);
    return part;
}

std::string bench_role(const std::string& method, int repetition, bool control) {
    return fmt::format("{}, repetition {}{}", method, repetition + 1, control ? ", noise floor" : "");
}

std::string part_difference(const RunRow& a, const RunRow& b) {
    const auto differences = run_differences(a, b);
    if (!differences.empty()) return difference_text({differences.front()});
    const auto differ = [](const std::string& what, const std::string& of_a, const std::string& of_b) {
        return fmt::format("{} ({} and {})", what, of_a, of_b);
    };
    if (a.seed != b.seed) return differ("seed", std::to_string(a.seed), std::to_string(b.seed));
    const json config_a = parse_config(a), config_b = parse_config(b);
    for (const auto& [key, name] : {std::pair("acceptance", "simulate-acceptance"),
                                    {"head_hash", "contents of the head's files"},
                                    {"shadow", "shadow"},
                                    {"calibration_rounds", "calibrate"},
                                    {"conversations", "number of conversations"},
                                    {"prompts_hash", "contents of the prompts"},
                                    {"tags", "tags"}})
        if (const json of_a = value_of(config_a, key), of_b = value_of(config_b, key); of_a != of_b)
            return differ(name, to_shown(of_a), to_shown(of_b));
    const int shards_a = describe_part(a).shard.count, shards_b = describe_part(b).shard.count;
    if (shards_a != shards_b)
        return differ("number of shards", std::to_string(shards_a), std::to_string(shards_b));
    return {};
}

std::string shard_text(const Shard& shard) {
    return fmt::format("shard {}/{}", shard.index, shard.count);
}

Status check_shards(const std::vector<ShardFile>& shards, std::string_view kind) {
    const int count = shards.front().shard.count;
    for (std::size_t i = 1; i < shards.size(); ++i)
        if (shards[i].shard.index == shards[i - 1].shard.index)
            return bad_input("{} is in {} and in {}; name each shard once", shard_text(shards[i].shard),
                             shards[i - 1].file, shards[i].file);
    for (int index = 1; index <= count; ++index)
        if (index > static_cast<int>(shards.size()) || shards[index - 1].shard.index != index)
            return bad_input("{} is missing; name its {}, too", shard_text({index, count}), kind);
    return {};
}

Result<PoolReport> pool_captures(const std::string& out, const std::vector<std::string>& files) {
    DS_ASSIGN(std::vector<Group> groups, read_groups(files));
    PoolReport report;
    std::vector<JoinedRun> whole;
    for (const Group& group : groups) DS_TRY(check_settings(group));
    DS_TRY(check_all_shards(groups));
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
