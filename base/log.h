#pragma once

#include <fmt/format.h>

#include <deque>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/units.h"

namespace draftscope {

enum class LogLevel { debug, info, warning, error };

struct LogLine {
    TimeNs monotonic = 0;
    LogLevel level = LogLevel::info;
    std::string text;
};

/// Writes a line to stderr (spdlog; stdout is for results) and to a bounded buffer that the Log panel shows.
/// Thread-safe.
void log_line(LogLevel level, std::string text);
/// Returns the buffered lines from index `first` of all lines ever logged. Sets `next` to the index for the
/// next call.
std::vector<LogLine> log_since(std::size_t first, std::size_t* next);

template <typename... Args>
void log_info(fmt::format_string<Args...> text, Args&&... args) {
    log_line(LogLevel::info, fmt::format(text, std::forward<Args>(args)...));
}
template <typename... Args>
void log_warning(fmt::format_string<Args...> text, Args&&... args) {
    log_line(LogLevel::warning, fmt::format(text, std::forward<Args>(args)...));
}
template <typename... Args>
void log_error(fmt::format_string<Args...> text, Args&&... args) {
    log_line(LogLevel::error, fmt::format(text, std::forward<Args>(args)...));
}

}  // namespace draftscope
