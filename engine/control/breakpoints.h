#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/phase.h"
#include "base/units.h"

namespace draftscope {

/// Conditions that stop the engine at the end of a round. They can be combined.
struct Breakpoints {
    std::optional<int> rejection_depth;    ///< stop at a rejection after fewer accepted drafts than this
    bool out_of_vocabulary = false;        ///< stop if a committed token is outside the head's active set
    bool slow_phase = false;               ///< stop if a phase takes longer than the p99 of its earlier times
    bool end_of_text = false;              ///< stop if the target ends a text
    std::string text{};                    ///< stop if the output contains this text; "" = off
    std::optional<int> round = {};         ///< stop after this round of a text, from 1
    std::optional<TokenId> token_id = {};  ///< stop if this token is committed
    std::optional<double> step_ms = {};    ///< stop if the phases of a step take longer
    bool operator==(const Breakpoints&) const = default;
};

/// The outcome of one sequence's round.
struct RoundEnd {
    int accepted = 0;          ///< as in its RoundRow
    int tree_depth = 0;        ///< as in its RoundRow
    int uncovered = 0;         ///< committed tokens outside the head's active set
    bool ended = false;        ///< an end token was committed
    std::string_view text{};   ///< the complete output so far
    std::size_t new_text = 0;  ///< bytes at the end of `text` that this round added
    RowId prompt_id = 0;
    std::int64_t round = 0;                ///< rounds of the text so far
    std::span<const TokenId> committed{};  ///< by this round
};
/// A breakpoint that was hit.
struct BreakpointHit {
    std::string what;     ///< "rejection at depth <= 1"; "" = none
    RowId prompt_id = 0;  ///< of the sequence that hit it; 0 = the step as a whole
};

/// Checks the phases and rounds of a run against the breakpoints. Engine thread only.
class BreakpointWatch {
  public:
    /// Minimum number of earlier times for a comparison (our default).
    static constexpr std::uint64_t min_samples = 100;

    /// Call after each outermost phase. Times are always collected, so that the breakpoint can be switched on
    /// during a run.
    void phase_ended(const SpanEvent& event, const Breakpoints& points);
    /// Call after a step. Returns the first breakpoint that was hit.
    BreakpointHit round_ended(std::span<const RoundEnd> rounds, const Breakpoints& points);
    void reset();

  private:
    /// Histogram of times with a resolution of 1/16 octave (4.4 %).
    struct TimeHistogram {
        static constexpr std::size_t buckets = 40 * 16;
        std::array<std::uint32_t, buckets> counts{};
        std::uint64_t total = 0;
    };
    static std::size_t find_bucket(std::uint64_t ticks);
    static std::uint64_t above_p99(const TimeHistogram& times);

    std::map<std::pair<Phase, int>, TimeHistogram> times_;  ///< by phase and draft level
    std::string slow_;                                      ///< first slow phase of the current step
    std::uint64_t step_ticks_ = 0;                          ///< of the current step's outermost phases
};

}  // namespace draftscope
