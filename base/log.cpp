#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdlib>

#include "base/clock.h"

namespace draftscope {
namespace {

constexpr std::size_t max_lines = 10'000;

struct LogBuffer {
    std::mutex mutex;
    std::deque<LogLine> lines;
    std::size_t dropped = 0;
};

LogBuffer& buffer() {
    static LogBuffer instance;
    return instance;
}

spdlog::logger& console() {
    static const auto logger = [] {
        const char* const plain = std::getenv("NO_COLOR");
        const auto colours =
            plain != nullptr && *plain != 0 ? spdlog::color_mode::never : spdlog::color_mode::automatic;
        auto made = std::make_shared<spdlog::logger>(
            "draftscope", std::make_shared<spdlog::sinks::stderr_color_sink_mt>(colours));
        made->set_pattern("%^%l%$: %v");
        made->set_level(spdlog::level::warn);
        return made;
    }();
    return *logger;
}

/// By LogLevel.
constexpr spdlog::level::level_enum levels[] = {spdlog::level::debug, spdlog::level::info,
                                                spdlog::level::warn, spdlog::level::err};

}  // namespace

void log_line(LogLevel level, std::string text) {
    console().log(levels[static_cast<int>(level)], "{}", text);
    LogBuffer& log_buffer = buffer();
    const std::lock_guard lock(log_buffer.mutex);
    log_buffer.lines.push_back({monotonic_ns(), level, std::move(text)});
    if (log_buffer.lines.size() > max_lines) {
        log_buffer.lines.pop_front();
        ++log_buffer.dropped;
    }
}

std::vector<LogLine> log_since(std::size_t first, std::size_t* next) {
    LogBuffer& log_buffer = buffer();
    const std::lock_guard lock(log_buffer.mutex);
    const std::size_t start = first > log_buffer.dropped ? first - log_buffer.dropped : 0;
    *next = log_buffer.dropped + log_buffer.lines.size();
    if (start >= log_buffer.lines.size()) return {};
    return {log_buffer.lines.begin() + static_cast<std::ptrdiff_t>(start), log_buffer.lines.end()};
}

}  // namespace draftscope
