#include "app/cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/clock.h"

namespace draftscope::cli {

ProgressBar::ProgressBar(bool wanted, TimeNs line_interval)
    : active_(wanted),
      terminal_(isatty(STDERR_FILENO) == 1),
      line_interval_(line_interval),
      last_(monotonic_ns()) {}

ProgressBar::~ProgressBar() {
    clear();
}

void ProgressBar::update(double fraction, const std::string& what) {
    if (!active_) return;
    const TimeNs now = monotonic_ns();
    if (!terminal_) {
        if (now - last_ < line_interval_) return;
        last_ = now;
        const std::string share = fraction < 0 ? std::string() : fmt::format("{:3.0f}% ", 100.0 * fraction);
        std::fprintf(stderr, "%s%s\n", share.c_str(), what.c_str());
        return;
    }
    if (drawn_ && now - last_ < 50 * ns_per_ms) return;
    last_ = now;
    drawn_ = true;
    if (fraction < 0) {
        std::fprintf(stderr, "\r\033[K%s ...", what.c_str());
    } else {
        constexpr int width = 24;
        const int filled = static_cast<int>(std::clamp(fraction, 0.0, 1.0) * width);
        const std::string bar = std::string(filled, '#') + std::string(width - filled, '.');
        std::fprintf(stderr, "\r\033[K[%s] %3.0f%% %s", bar.c_str(), 100.0 * fraction, what.c_str());
    }
    std::fflush(stderr);
}

void ProgressBar::clear() {
    if (!drawn_) return;
    std::fprintf(stderr, "\r\033[K");
    std::fflush(stderr);
    drawn_ = false;
}

}  // namespace draftscope::cli
