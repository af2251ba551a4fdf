#include "engine/control/breakpoints.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/clock.h"

namespace draftscope {
namespace {

constexpr int sub_buckets = 16;

double milliseconds(std::uint64_t ticks) {
    const TickScale& scale = TickScale::calibrate();
    return static_cast<double>(scale.to_monotonic_ns(ticks) - scale.to_monotonic_ns(0)) * 1e-6;
}

/// A match may begin in an earlier round and end in this one.
bool contains(const RoundEnd& round, const std::string& pattern) {
    const std::size_t reach = std::min(round.text.size(), round.new_text + pattern.size() - 1);
    return round.text.substr(round.text.size() - reach).find(pattern) != std::string_view::npos;
}

std::string find_hit(const RoundEnd& round, const Breakpoints& points) {
    const auto& depth = points.rejection_depth;
    if (depth && round.accepted < *depth && round.accepted < round.tree_depth)
        return fmt::format("rejection at depth <= {}", *depth);
    if (points.out_of_vocabulary && round.uncovered > 0) return "token outside the head's vocabulary";
    if (!points.text.empty() && contains(round, points.text))
        return fmt::format("text contains \"{}\"", points.text);
    if (points.end_of_text && round.ended) return "end of text";
    if (points.round && round.round == *points.round) return fmt::format("round {}", *points.round);
    if (points.token_id && std::ranges::find(round.committed, *points.token_id) != round.committed.end())
        return fmt::format("token {} committed", *points.token_id);
    return "";
}

}  // namespace

std::size_t BreakpointWatch::find_bucket(std::uint64_t ticks) {
    const int octave = ticks < sub_buckets ? 0 : std::bit_width(ticks) - 5;
    const auto sub = static_cast<std::size_t>(ticks >> octave) & (sub_buckets - 1);
    const std::size_t bucket =
        static_cast<std::size_t>(octave + (ticks < sub_buckets ? 0 : 1)) * sub_buckets + sub;
    return std::min(bucket, TimeHistogram::buckets - 1);
}

/// Lower bound of the bucket after the one with the 99th percentile.
std::uint64_t BreakpointWatch::above_p99(const TimeHistogram& times) {
    std::uint64_t left = times.total - times.total / 100;
    std::size_t bucket = 0;
    for (; bucket + 1 < times.counts.size() && times.counts[bucket] < left; ++bucket)
        left -= times.counts[bucket];
    const std::size_t next = bucket + 1;
    if (next < 2 * sub_buckets) return next;
    return (sub_buckets + next % sub_buckets) << (next / sub_buckets - 1);
}

void BreakpointWatch::phase_ended(const SpanEvent& event, const Breakpoints& points) {
    TimeHistogram& times = times_[{event.phase, event.level}];
    const std::uint64_t ticks = event.end_ticks - std::min(event.start_ticks, event.end_ticks);
    if (points.slow_phase && slow_.empty() && event.round >= 0 && times.total >= min_samples) {
        const std::uint64_t limit = above_p99(times);
        if (ticks >= limit)
            slow_ = fmt::format("{} took {:.3g} ms; the p99 of its {} earlier runs is {:.3g} ms",
                                to_text(event.phase), milliseconds(ticks), times.total, milliseconds(limit));
    }
    step_ticks_ += ticks;
    ++times.counts[find_bucket(ticks)];
    ++times.total;
}

BreakpointHit BreakpointWatch::round_ended(std::span<const RoundEnd> rounds, const Breakpoints& points) {
    const std::string slow = std::exchange(slow_, {});
    const std::uint64_t step = std::exchange(step_ticks_, 0);
    for (const RoundEnd& round : rounds)
        if (std::string met = find_hit(round, points); !met.empty()) return {std::move(met), round.prompt_id};
    if (const double took = milliseconds(step); points.step_ms && took > *points.step_ms)
        return {fmt::format("step of {:.3g} ms", took)};
    return {points.slow_phase ? slow : ""};
}

void BreakpointWatch::reset() {
    times_.clear();
    slow_.clear();
    step_ticks_ = 0;
}

}  // namespace draftscope
