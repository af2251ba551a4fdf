#include "app/cli/shard_option.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>

#include "base/parse.h"

namespace draftscope::cli {
namespace {

std::optional<int> read_int(const Environment& environment, const char* name) {
    const char* value = environment(name);
    return value == nullptr ? std::nullopt : parse_number<int>(value);
}

/// The place of this process among `count` ones, from 0.
struct Place {
    int index = 0, count = 1;
    const char* variable = "";
};

Result<std::optional<Place>> place_in_array(const Environment& environment) {
    constexpr const char* name = "SLURM_ARRAY_TASK_ID";
    const auto id = read_int(environment, name);
    if (!id) return std::optional<Place>();
    const int first = read_int(environment, "SLURM_ARRAY_TASK_MIN").value_or(*id);
    const int last = read_int(environment, "SLURM_ARRAY_TASK_MAX").value_or(first);
    const int step = std::max(1, read_int(environment, "SLURM_ARRAY_TASK_STEP").value_or(1));
    const int count = read_int(environment, "SLURM_ARRAY_TASK_COUNT").value_or((last - first) / step + 1);
    const bool regular =
        *id >= first && *id <= last && (*id - first) % step == 0 && last - first == (count - 1) * step;
    if (!regular)
        return bad_input(
            "{} is {} in an array of {} tasks from {} to {}, which has no regular step; give --shard I/N, or "
            "--shard off",
            name, *id, count, first, last);
    return std::optional(Place{(*id - first) / step, count, name});
}

/// mpirun starts its daemons through srun, so MPI's variables come first. A batch script has SLURM_PROCID,
/// too, but only srun sets the number of tasks of a step.
std::optional<Place> place_among_ranks(const Environment& environment) {
    struct Names {
        const char *rank, *size;
    };
    for (const Names& names : {Names{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                               {"PMI_RANK", "PMI_SIZE"},
                               {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"}}) {
        const auto rank = read_int(environment, names.rank), size = read_int(environment, names.size);
        if (rank && size && *rank >= 0 && *rank < *size) return Place{*rank, *size, names.rank};
    }
    return std::nullopt;
}

const char* process_environment(const char* name) {
    return std::getenv(name);
}

std::string host_name() {
    char name[256] = {};
    return gethostname(name, sizeof name - 1) == 0 ? name : "unknown";
}

/// A measured tree could differ between the parts of a run.
Status check_tree_is_named(const RunConfig& config, std::string_view parts) {
    if (config.tree != "auto" && config.tree != quick_tree) return {};
    return bad_input("--tree {}: could choose another tree for {}; name the tree", config.tree, parts);
}

}  // namespace

Result<FoundShard> find_shard(const Environment& environment) {
    DS_ASSIGN(const auto array, place_in_array(environment));
    const auto rank = place_among_ranks(environment);
    FoundShard found;
    int index = 0;
    for (const auto& place : {array, rank}) {
        if (!place || place->count == 1) continue;
        index = index * place->count + place->index;
        found.shard.count *= place->count;
        found.variables += (found.variables.empty() ? "" : " and ") + std::string(place->variable);
    }
    found.shard.index = index + 1;
    return found;
}

Result<Shard> parse_shard(const std::string& text) {
    if (text == "off") return Shard();
    const std::size_t slash = text.find('/');
    const std::string_view whole = text;
    if (slash != std::string::npos) {
        const auto index = parse_number<int>(whole.substr(0, slash)),
                   count = parse_number<int>(whole.substr(slash + 1));
        if (index && count && *index >= 1 && *index <= *count) return Shard{*index, *count};
    }
    return bad_input("--shard {}: expected I/N with I from 1 to N, as in 2/8, or off", text);
}

Result<std::string> expand_pattern(const std::string& option, const std::string& path, const Shard& shard,
                                   const Environment& environment) {
    std::string out, job;
    for (const char* name : {"SLURM_ARRAY_JOB_ID", "SLURM_JOB_ID", "PBS_JOBID"})
        if (const char* id = environment(name); id != nullptr && job.empty()) job = id;
    const std::map<char, std::string> values = {{'i', std::to_string(shard.index)},
                                                {'n', std::to_string(shard.count)},
                                                {'h', host_name()},
                                                {'j', job},
                                                {'%', "%"}};
    bool has_index = false;
    for (std::size_t i = 0; i < path.size(); ++i) {
        if (path[i] != '%') {
            out += path[i];
            continue;
        }
        const char kind = ++i < path.size() ? path[i] : ' ';
        const auto value = values.find(kind);
        if (value == values.end())
            return bad_input(
                "{} {}: unknown pattern '%{}'; known are %i (shard), %n (shards), %h (host), %j (job id) and "
                "%% (a %)",
                option, path, kind);
        if (value->second.empty())
            return bad_input("{} {}: %j is the job id, but SLURM_JOB_ID and PBS_JOBID are not set", option,
                             path);
        out += value->second;
        has_index = has_index || kind == 'i';
    }
    if (!shard.whole() && !has_index)
        return bad_input(
            "{} {}: every one of the {} shards would write this file; put the shard into its name with %i",
            option, path, shard.count);
    return out;
}

void add_shard_option(CLI::App& command, std::string& shard, const std::string& output) {
    std::string text =
        "I/N: only every N-th conversation, from number I on; I is 1 to N. Pooled shards have the results of "
        "the "
        "whole. Default: from the variables of a Slurm array, srun or mpirun with several tasks; off = none";
    if (!output.empty())
        text += fmt::format(". {} may hold %i (shard), %n (shards), %h (host), %j (job id)", output);
    command.add_option("--shard", shard, text);
}

void add_resume_option(CLI::App& command, bool& resume) {
    command.add_flag("--resume", resume,
                     "continue the run that the file of --save holds: its complete conversations are not "
                     "decoded again. Without such a file, begin");
}

Status prepare_capture(const std::string& shard, RunConfig& config) {
    if (config.resume && config.save.empty())
        return bad_input("--resume: continues a capture; name it with --save");
    if (config.resume && config.overwrite)
        return bad_input("--resume: --overwrite would delete what it continues; give one of them");
    if (config.resume) DS_TRY(check_tree_is_named(config, "what was recorded and the rest"));
    DS_TRY(choose_prompt_shard(shard, config));
    return expand_path("--save", config.shard, config.save);
}

void add_tag_option(CLI::App& command, std::vector<std::string>& tags) {
    command.add_option("--tag", tags, "KEY=VALUE, stored with the run (repeatable)")
        ->allow_extra_args(false)
        ->check(CLI::Validator(
            [](std::string& tag) {
                const std::size_t at = tag.find('=');
                return at == 0 || at == std::string::npos ? "expected KEY=VALUE" : std::string();
            },
            ""));
}

Status choose_shard(const std::string& text, Shard& shard) {
    if (!text.empty()) {
        DS_ASSIGN(shard, parse_shard(text));
        return {};
    }
    DS_ASSIGN(const FoundShard found, find_shard(process_environment));
    shard = found.shard;
    if (!shard.whole())
        std::fprintf(stderr, "shard %d of %d, from %s; --shard off takes all conversations\n", shard.index,
                     shard.count, found.variables.c_str());
    return {};
}

Status choose_prompt_shard(const std::string& text, RunConfig& config) {
    if (config.prompts_file.empty()) {
        if (text.empty()) return {};
        DS_ASSIGN(const Shard shard, parse_shard(text));
        if (shard.whole()) return {};
        return bad_input("--shard {}: --prompt gives one prompt, which has no shards; use --prompts", text);
    }
    DS_TRY(choose_shard(text, config.shard));
    return config.shard.whole() ? Status() : check_tree_is_named(config, "the shards");
}

Status expand_path(const std::string& option, const Shard& shard, std::string& path) {
    if (path.empty()) return {};
    DS_ASSIGN(path, expand_pattern(option, path, shard, process_environment));
    return {};
}

nlohmann::json shard_json(const Shard& shard) {
    if (shard.whole()) return nullptr;
    return {{"index", shard.index}, {"count", shard.count}};
}

}  // namespace draftscope::cli
