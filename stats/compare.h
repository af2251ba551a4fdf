#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "capture/capture.h"
#include "stats/bootstrap.h"
#include "stats/comparable.h"
#include "stats/drift.h"

/// Compares two runs over the same prompts, B against A. The command `compare` and the window show the same
/// result.
namespace draftscope {

/// Result for one quantity; `none_shown` = the interval includes no change.
enum class Change { better, worse, none_shown, no_interval };

/// A quantity of both runs over the paired prompts: tau over all rounds, times over the steps that count.
struct ComparedQuantity {
    std::string name;  ///< "tokens per second", "tau", "round time", or a phase
    std::string unit;  ///< "tok/s", "tokens per round", "us per round"
    int phase_id = 0;  ///< 0 = not a phase
    double a = 0, b = 0;
    Estimate ratio;                    ///< b / a; 0 when a is 0
    std::optional<double> difference;  ///< b - a, for quantities without a meaningful ratio (phases)
    bool more_is_better = false;
    Change change = Change::no_interval;  ///< for phases after Holm's correction over all phases
};

struct CompareOptions {
    bool force = false;
    BootstrapOptions bootstrap;
    std::string how_to_force;  ///< end of the sentence that refuses runs
};

/// Result of compare_runs().
struct Comparison {
    RunRow a, b;                        ///< the first run of each side
    std::vector<RowId> runs_a, runs_b;  ///< runs of a side repeat one setting and are pooled
    std::vector<RunDifference> differences;
    bool forced = false;  ///< the runs are not comparable, but CompareOptions::force was set
    std::size_t pairs = 0, only_a = 0, only_b = 0;
    /// Conversations of the pairs: the resampling unit, since turns share their text.
    std::size_t conversations = 0;
    /// Number of pairs with equal tokens. If both runs are exact at temperature 0, a lower number means that
    /// the work differed.
    std::size_t same_tokens = 0;
    bool has_times = true;  ///< false: imported runs, compared by tau alone
    ComparedQuantity speed, tau, round_time;
    std::vector<ComparedQuantity> phases;  ///< exposed time per round, in table order
    /// Verification times of both runs, as a control of the machine. Absent without equal trees, or if the
    /// runs differ in more than drafting and the machine.
    std::optional<MachineControl> machine;
    /// Ratio of the speeds times the ratio of verification times. It estimates the head's part, assuming that
    /// the machine slowed everything equally. Absent without `machine`.
    std::optional<Estimate> adjusted_speed;
    std::string verdict;  ///< one or two sentences
    std::vector<std::string> warnings;
};
/// Pairs prompts by suite, id and turn; repeated names are paired in order. Prompts with different texts are
/// not paired. Returns bad_input without pairs, or if the runs are not comparable and `force` is not set.
/// The runs of a side must repeat one setting (seeds, shards of the prompts).
Result<Comparison> compare_runs(const Snapshot& a, const std::vector<RowId>& runs_a, const Snapshot& b,
                                const std::vector<RowId>& runs_b, const CompareOptions& options = {});
inline Result<Comparison> compare_runs(const Snapshot& a, RowId run_a, const Snapshot& b, RowId run_b,
                                       const CompareOptions& options = {}) {
    return compare_runs(a, std::vector{run_a}, b, std::vector{run_b}, options);
}

std::string_view to_text(Change change);  ///< "better", "worse", "no change shown", "too few conversations"

/// As to_text(quantity.change), or "only in B" for a phase that one run lacks.
std::string change_text(const ComparedQuantity& quantity);

inline constexpr std::array<const char*, 6> compare_columns = {"", "A", "B", "B / A", "95 % interval", ""};
/// Returns the cells for compare_columns: name with unit, both values, ratio, interval, change.
std::array<std::string, 6> compare_cells(const ComparedQuantity& quantity);
/// Formats one side: "A run 1 drafter eagle2 head full ...". Several runs are shown as pooled.
std::string compare_side(char letter, const RunRow& run, const std::vector<RowId>& runs = {});
/// Formats the distance of a ratio from 1: "3.2 %" for 1.032 and for 0.968.
std::string change_percent(double ratio);
/// Describes how the numbers were computed.
std::string compare_footer(const Comparison& comparison);

}  // namespace draftscope
