#pragma once

#include <span>
#include <string>
#include <vector>

#include "app/jobs/commands/commands.h"
#include "base/result.h"

namespace CLI {
class App;
}

namespace draftscope::cli {

/// Returns the ids of all heads: "full, fr-spec, ...".
std::string known_heads();
/// Adds --threads. Values above the number of usable CPUs are reduced, with a warning.
void add_threads_option(CLI::App& command, int& threads);
/// Rejects options that have no effect at temperature 0: --top-p, --top-k, --seed and --verify.
/// Exceptions: --verify if one of `heads` redistributes draft probabilities (+rdk), --seed with simulated
/// acceptance.
Status check_sampling_used(const RunConfig& config, std::span<const std::string> heads);
/// Joins the pieces that CLI11 split at commas, and splits them into drafters.
void join_drafters(std::vector<std::string>& pieces);
/// Throws ValidationError for --head, --shadow and --head-weights if none of the drafters has an LM head.
void check_heads_used(const CLI::App& command, const std::vector<std::string>& drafters);
/// Adds --prompt, --prompts, --limit and --balanced.
void add_prompt_options(CLI::App& command, RunConfig& config);
/// Adds --raw, --template and --system.
void add_template_options(CLI::App& command, RunConfig& config);
/// Adds --temperature, --top-p, --top-k, --seed, --max-new and --context.
void add_sampling_options(CLI::App& command, RunConfig& config);
/// Adds the decoding options that run and bench share. Heads are added by each command.
void add_decoding_options(CLI::App& command, RunConfig& config);

}  // namespace draftscope::cli
