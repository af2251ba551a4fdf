#pragma once

#include <span>
#include <string>

#include "app/jobs/commands.h"
#include "base/result.h"

namespace CLI {
class App;
}

namespace draftscope::cli {

/// "full, fr-spec, ..."
std::string known_heads();
/// Adds --threads, which is cut to the CPUs that this process may use, with a warning.
void add_threads_option(CLI::App& command, int& threads);
/// Refuses what was given and changes nothing under greedy decoding: --top-p, --top-k, --seed and, unless one
/// of `heads` redistributes its drafts' probabilities, --verify with another rule.
Status check_sampling_used(const RunConfig& config, std::span<const std::string> heads);
/// How to decode, heads apart: the options that `run` and `bench` share.
void add_decoding_options(CLI::App& command, RunConfig& config);

}  // namespace draftscope::cli
