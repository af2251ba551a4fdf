#pragma once

#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <span>
#include <string>
#include <vector>

#include "app/jobs/commands/run_config.h"
#include "base/result.h"

namespace draftscope::cli {

/// Adds an option whose help shows its default.
template <typename T>
CLI::Option* add_shown(CLI::App& command, const std::string& names, T& value, const std::string& text = {}) {
    return command.add_option(names, value, text)->capture_default_str();
}

/// Adds an option for a list whose values are separated by commas.
template <typename T>
CLI::Option* add_list(CLI::App& command, const std::string& names, std::vector<T>& values,
                      const std::string& text) {
    return command.add_option(names, values, text)->delimiter(',');
}

/// Adds an option for a list of specs, separated by commas or blanks. `list` has them with commas.
inline CLI::Option* add_spec_list(CLI::App& command, const std::string& names, std::string& list,
                                  const std::string& text) {
    const auto join = [&list](const std::vector<std::string>& words) {
        list = fmt::format("{}", fmt::join(words, ","));
    };
    return command.add_option_function<std::vector<std::string>>(names, join, text)->default_str(list);
}

/// Returns the ids of all heads: "full, fr-spec, ...".
std::string known_heads();
/// Adds --model.
void add_model_option(CLI::App& command, std::string& model);
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
