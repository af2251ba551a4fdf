#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "capture/capture.h"
#include "profiler/bootstrap.h"
#include "profiler/comparable.h"
#include "profiler/drift.h"

/// Two runs over the same prompts: B against A, prompt by prompt. The command `compare` and the window show
/// the same model.
namespace draftscope {

enum class Change { better, worse, none_shown, no_interval };

/// A quantity under both runs, over the paired prompts' counted steps.
struct ComparedQuantity {
    std::string name;  ///< "tokens per second", "tau", "round time", or a phase
    std::string unit;  ///< "tok/s", "counted rounds", "us per round"
    int phase_id = 0;  ///< 0 = not a phase
    double a = 0, b = 0;
    Estimate ratio;                    ///< b / a; 0 when a is 0
    std::optional<double> difference;  ///< b - a where a ratio says little (phases)
    bool more_is_better = false;
    Change change = Change::no_interval;  ///< of phases: after Holm's correction over them
};

struct CompareOptions {
    bool force = false;
    BootstrapOptions bootstrap;
};

struct Comparison {
    RunRow a, b;                        ///< the first run of either side
    std::vector<RowId> runs_a, runs_b;  ///< several repeat one setting and are pooled
    std::vector<RunDifference> differences;
    bool forced = false;  ///< they should not be compared; the caller insisted
    std::size_t pairs = 0, only_a = 0, only_b = 0;
    std::size_t conversations = 0;  ///< of the pairs: what is resampled, since turns share their text
    /// Of the pairs, those whose tokens are the same; where both runs are exact at temperature 0, others mean
    /// that the work was not.
    std::size_t same_tokens = 0;
    ComparedQuantity speed, tau, round_time;
    std::vector<ComparedQuantity> phases;  ///< exposed time per round, in table order
    /// Whether the machine was the same for both, by what no head touches. Absent where the runs differ in
    /// more than drafting and the machine, and without equal trees.
    std::optional<MachineControl> machine;
    /// Ratio of the speeds times that of verification, where the machine differed: the part that may be the
    /// head's if the machine slowed everything alike.
    std::optional<Estimate> adjusted_speed;
    std::string verdict;  ///< a sentence or two for people
    std::vector<std::string> warnings;
};
/// Pairs prompts by suite, id and turn (the n-th of one name with the n-th); texts that differ are no pair.
/// bad_input without a pair, and where numbers of the two don't belong together unless `force` is given.
Result<Comparison> compare_runs(const Snapshot& a, RowId run_a, const Snapshot& b, RowId run_b,
                                const CompareOptions& options = {});
/// The same of several runs a side, which have to repeat one setting (seeds, shards of the prompts).
Result<Comparison> compare_runs(const Snapshot& a, const std::vector<RowId>& runs_a, const Snapshot& b,
                                const std::vector<RowId>& runs_b, const CompareOptions& options = {});

}  // namespace draftscope
