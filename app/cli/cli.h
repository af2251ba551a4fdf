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

/// Runs the selected command after parsing. Returns the process's exit code, or the error that main()
/// reports.
using Action = std::function<Result<int>()>;

/// Writes formatted text to stdout. main() reports failures when the command has ended.
template <typename... Args>
void print(fmt::format_string<Args...> format, Args&&... args) {
    const std::string text = fmt::format(format, std::forward<Args>(args)...);
    std::fwrite(text.data(), 1, text.size(), stdout);
}

/// Opens the window, as draftscope without arguments does.
Result<int> open_window();

}  // namespace draftscope::cli
