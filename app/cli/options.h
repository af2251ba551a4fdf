#pragma once

#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace draftscope::cli {

/// Adds an option whose help shows its default.
template <typename T>
CLI::Option* add_shown(CLI::App& command, const std::string& names, T& value, const std::string& text = {}) {
    return command.add_option(names, value, text)->capture_default_str();
}

/// Adds an option for a list of specs, separated by commas or blanks. `list` has them with commas.
inline CLI::Option* add_spec_list(CLI::App& command, const std::string& names, std::string& list,
                                  const std::string& text) {
    const auto join = [&list](const std::vector<std::string>& words) {
        list = fmt::format("{}", fmt::join(words, ","));
    };
    return command.add_option_function<std::vector<std::string>>(names, join, text)->default_str(list);
}

}  // namespace draftscope::cli
