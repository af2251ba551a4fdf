#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "app/jobs/commands/run_config.h"
#include "base/result.h"

namespace CLI {
class App;
}

namespace draftscope::cli {

/// Returns the value of an environment variable; null if it is not set.
using Environment = std::function<const char*(const char* name)>;

/// A shard and the variables that it comes from.
struct FoundShard {
    Shard shard;
    std::string variables;  ///< "SLURM_ARRAY_TASK_ID"; "" = no variable gives a shard
};
/// Returns the shard of this process in a Slurm array, an srun step or an MPI job. Ranks divide the shard of
/// an array task. Jobs of one task give the whole set. An irregular array is bad_input.
Result<FoundShard> find_shard(const Environment& environment);
/// Parses I/N or off.
Result<Shard> parse_shard(const std::string& text);
/// Replaces %i, %n (shard), %h (host), %j (job id) and %% in a path. A shard whose path lacks %i is
/// bad_input, because all shards would write the same file.
Result<std::string> expand_pattern(const std::string& option, const std::string& path, const Shard& shard,
                                   const Environment& environment);

/// Adds --shard. `output` is the option that names the command's file, as "--save"; "" if it has none.
void add_shard_option(CLI::App& command, std::string& shard, const std::string& output);
/// Adds --resume.
void add_resume_option(CLI::App& command, bool& resume);
/// Adds --tag.
void add_tag_option(CLI::App& command, std::vector<std::string>& tags);
/// Sets `shard` to the value of --shard, or to that of the environment, which is named on stderr.
Status choose_shard(const std::string& text, Shard& shard);
/// Sets the shard and the capture of a run or bench. Rejects --resume without --save, with --overwrite, and
/// with a tree that is measured.
Status prepare_capture(const std::string& shard, RunConfig& config);
/// As choose_shard(), for prompts that `config` names. A single prompt has no shards. --tree auto and quick
/// are refused, because each shard could choose another tree.
Status choose_prompt_shard(const std::string& text, RunConfig& config);
/// Expands the patterns of `path`, the value of `option`; "" stays.
Status expand_path(const std::string& option, const Shard& shard, std::string& path);
/// Returns {"index": 1, "count": 4}; null for the whole set.
nlohmann::json shard_json(const Shard& shard);

}  // namespace draftscope::cli
