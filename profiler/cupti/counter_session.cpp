#include "profiler/cupti/counter_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/clock.h"

namespace draftscope {

CounterSession::CounterSession(std::unique_ptr<CounterApi> api, std::size_t max_ranges)
    : api_(std::move(api)), max_ranges_(max_ranges) {}

CounterSession::~CounterSession() {
    end();
}

CuptiProbe CounterSession::begin() {
    CuptiProbe found = api_->open(gpu_counter_names, max_ranges_);
    if (found.state != CuptiState::ready) return found;
    ranges_.clear();
    if (const int code = api_->start(); code != 0) {
        found = cupti_refusal(code, api_->message(code), "", "starting to count");
        api_->close();
        return found;
    }
    counting_ = true;
    return found;
}

void CounterSession::fail(const char* what, int code) {
    losses_.failure = cupti_refusal(code, api_->message(code), "", what).text;
    counting_ = false;
    api_->close();
}

void CounterSession::open(const SpanEvent& opening) {
    if (depth_++ > 0 || !counting_) return;
    if (ranges_.size() >= max_ranges_) {
        ++losses_.skipped;
        return;
    }
    const std::string name = std::to_string(ranges_.size());
    if (const int code = api_->push(name.c_str()); code != 0) return fail("opening a range", code);
    ranges_.push_back({opening.phase, monotonic_ns(), {}});
    pushed_ = true;
}

void CounterSession::close(const SpanEvent&) {
    if (depth_ == 0 || --depth_ > 0) return;
    if (!std::exchange(pushed_, false) || !counting_) return;
    if (const int code = api_->pop(); code != 0) fail("closing a range", code);
}

void CounterSession::take(std::vector<CounterReading>& out, bool all) {
    if (!counting_ || depth_ > 0 || ranges_.empty()) return;
    if (!all && ranges_.size() < max_ranges_ / 2) return;
    read_.assign(ranges_.size(), false);
    std::uint64_t dropped = 0;
    const int code = api_->stop(
        [&](std::string_view name, std::span<const double> values) {
            std::size_t index = 0;
            const auto parsed = std::from_chars(name.data(), name.data() + name.size(), index);
            if (parsed.ec != std::errc() || index >= ranges_.size() || read_[index]) return;
            read_[index] = true;
            std::copy_n(values.begin(), std::min(values.size(), ranges_[index].values.size()),
                        ranges_[index].values.begin());
        },
        dropped);
    // Ranges with values are kept even if the last ones have none.
    for (std::size_t i = 0; i < ranges_.size(); ++i) {
        if (read_[i])
            out.push_back(ranges_[i]);
        else
            ++losses_.dropped;
    }
    ranges_.clear();
    if (code != 0) return fail("reading the counters", code);
    if (const int again = api_->start(); again != 0) fail("restarting the counters", again);
}

void CounterSession::end() {
    if (counting_) api_->close();
    counting_ = false;
}

CounterLosses CounterSession::take_losses() {
    return std::exchange(losses_, {});
}

}  // namespace draftscope
