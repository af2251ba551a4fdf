#include "app/cli/job.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "base/clock.h"
#include "base/utf8.h"

namespace draftscope::cli {
namespace {

std::size_t terminal_columns() {
    winsize size{};
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

/// Returns whether a carriage return lets the next line replace this one.
bool rewrites_lines() {
    const char* const term = std::getenv("TERM");
    return isatty(STDERR_FILENO) == 1 && term != nullptr && *term != 0 && std::string_view(term) != "dumb";
}

/// The watching thread reads it, so it has to be atomic, not only `volatile std::sig_atomic_t`.
std::atomic<int> interrupts{0};
static_assert(std::atomic<int>::is_always_lock_free);

void on_interrupt(int) {
    if (interrupts.fetch_add(1, std::memory_order_relaxed) == 2)
        _exit(130);  // third Ctrl-C: exit without cleaning up
}

}  // namespace

std::string progress_line(double fraction, const std::string& what, std::size_t columns) {
    std::string line = what + " ...";
    if (fraction >= 0) {
        constexpr std::size_t width = 24;
        const auto filled = static_cast<std::size_t>(std::clamp(fraction, 0.0, 1.0) * width);
        line = fmt::format("{:3.0f}% {}", 100.0 * fraction, what);
        if (width + 2 + line.size() < columns)
            line = fmt::format("[{}{}] {}", std::string(filled, '#'), std::string(width - filled, '.'), line);
    }
    std::size_t end = 0;
    for (std::size_t used = 1; end < line.size() && used < columns; ++used)
        end += next_utf8(std::string_view(line).substr(end)).length;
    line.resize(end);
    return line;
}

ProgressBar::ProgressBar(bool wanted, TimeNs line_interval)
    : active_(wanted), terminal_(rewrites_lines()), line_interval_(line_interval), last_(monotonic_ns()) {}

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
    if (drawn_ > 0 && now - last_ < 50 * ns_per_ms) return;
    last_ = now;
    draw(progress_line(fraction, what, terminal_columns()));
}

/// Overwrites the drawn line, with blanks instead of an escape sequence, and leaves the cursor at its start
/// for whatever is printed next.
void ProgressBar::draw(const std::string& line) {
    const std::size_t rest = drawn_ - std::min(drawn_, line.size());
    std::fprintf(stderr, "\r%s%*s\r", line.c_str(), static_cast<int>(rest), "");
    std::fflush(stderr);
    drawn_ = line.size();
}

void ProgressBar::clear() {
    if (drawn_ > 0) draw("");
}

InterruptWatch::InterruptWatch(DebugGate& gate) {
    interrupts.store(0, std::memory_order_relaxed);
    std::signal(SIGINT, on_interrupt);
    std::signal(SIGTERM, on_interrupt);
    // A terminal that closes ends a run as kill does; nohup has the program ignore it.
    hangup_ = std::signal(SIGHUP, on_interrupt) != SIG_IGN;
    if (!hangup_) std::signal(SIGHUP, SIG_IGN);
    watcher_ = std::thread([this, &gate] {
        while (!done_.load(std::memory_order_relaxed)) {
            if (interrupts.load(std::memory_order_relaxed) > 0) gate.cancel();
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
        }
    });
}

InterruptWatch::~InterruptWatch() {
    done_.store(true, std::memory_order_relaxed);
    watcher_.join();
    std::signal(SIGINT, SIG_DFL);
    std::signal(SIGTERM, SIG_DFL);
    if (hangup_) std::signal(SIGHUP, SIG_DFL);
}

}  // namespace draftscope::cli
