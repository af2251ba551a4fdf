#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace draftscope::cli {

/// Adds an option whose help shows its default.
template <typename T>
CLI::Option* add_shown(CLI::App& command, const std::string& names, T& value, const std::string& text = {}) {
    return command.add_option(names, value, text)->capture_default_str();
}

}  // namespace draftscope::cli
