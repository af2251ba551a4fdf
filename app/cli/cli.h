#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <functional>
#include <string>
#include <utility>

#include "base/result.h"

namespace CLI {
class App;
}

namespace draftscope::cli {

/// Runs the selected command after parsing; returns the process's exit code.
using Action = std::function<int()>;

/// Writes formatted text to stdout. main() reports failures when the command has ended.
template <typename... Args>
void print(fmt::format_string<Args...> format, Args&&... args) {
    const std::string text = fmt::format(format, std::forward<Args>(args)...);
    std::fwrite(text.data(), 1, text.size(), stdout);
}

/// Prints "draftscope: message" to stderr and returns the error's exit code.
int report(const Error& error);
/// Returns the exit code of an error: 1 failed, 2 bad input, 130 interrupted.
int exit_code(const Error& error);

/// Opens the window, as draftscope without arguments does.
int open_window();

}  // namespace draftscope::cli
