#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "profiler/phase.h"

namespace draftscope {

/// What holds the engine at the end of the round in which it happens. Any number may be on together.
struct Breakpoints {
    std::optional<int> rejection_depth;  ///< fewer draft tokens than this were accepted, and one was rejected
    bool out_of_vocabulary = false;      ///< a committed token was not in the head's active set
    bool slow_phase = false;             ///< a phase took longer than the p99 of its earlier times
    bool end_of_text = false;            ///< the target ended a text
    std::string text{};                  ///< the output came to contain this; "" = off
    bool operator==(const Breakpoints&) const = default;
};

/// How one sequence's round came out.
struct RoundEnd {
    int accepted = 0;          ///< as in its RoundRow
    int tree_depth = 0;        ///< as in its RoundRow
    int uncovered = 0;         ///< committed tokens outside the head's active set
    bool ended = false;        ///< an end token was committed
    std::string_view text{};   ///< of the whole output so far
    std::size_t new_text = 0;  ///< bytes at its end that came with this round
};

/// Watches phases and rounds of a run for what the user asked to stop at. Engine thread.
class BreakpointWatch {
  public:
    /// A phase's time is compared once it has been seen this often (our default).
    static constexpr std::uint64_t least_times = 100;

    /// After each outermost phase. Times are kept whether or not they are watched, so that switching the
    /// breakpoint on in the middle of a run works at once.
    void phase_ended(const SpanEvent& event, const Breakpoints& points);
    /// After a step: which breakpoint was met first, as "rejection at depth <= 1"; "" = none.
    std::string round_ended(std::span<const RoundEnd> rounds, const Breakpoints& points);
    void reset();

  private:
    /// Counts of times in steps of a sixteenth of an octave (4.4 %).
    struct Times {
        static constexpr std::size_t buckets = 40 * 16;
        std::array<std::uint32_t, buckets> counts{};
        std::uint64_t total = 0;
    };
    static std::size_t bucket_of(std::uint64_t ticks);
    static std::uint64_t above_p99(const Times& times);

    std::map<std::pair<Phase, int>, Times> times_;  ///< of a phase at a draft level
    std::string slow_;                              ///< the first slow phase of the step
};

}  // namespace draftscope
