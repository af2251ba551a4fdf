#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "app/jobs/bench/bench_job.h"
#include "app/jobs/replay/replay_job.h"

/// Acceptance of a table's heads along recordings, in the form of a benchmark.
namespace draftscope {

/// Rows with tau and active rows alone; the speeds are 0.
struct ReplayedRows {
    BenchReport bench;
    std::vector<std::string> estimates;  ///< why some figures are estimates; empty = exact
    std::vector<std::string> inexact;    ///< the methods that have them, as given
};
/// Returns the folder of a repetition's recording. The one before is no longer used.
using RecordingOf = std::function<Result<std::string>(int repetition)>;

/// Replays `methods`, "DRAFTER x HEAD", or "none", whose tau is 1, along a recording for each repetition.
/// Prompts of other tasks than `tasks` are left out. Recording, drafter and heads of `config` are not used.
Result<ReplayedRows> replay_rows(ReplayConfig config, const RunConfig& run,
                                 std::span<const std::string> methods, std::span<const std::string> tasks,
                                 int repeat, const RecordingOf& recording_of, const JobHooks& hooks);

/// Replaces the rows of the methods that `decoded` has, too. Its tasks may have another order.
void replace_rows(BenchReport& bench, const BenchReport& decoded);

}  // namespace draftscope
