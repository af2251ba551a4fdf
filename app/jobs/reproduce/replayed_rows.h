#pragma once

#include <span>
#include <string>
#include <vector>

#include "app/jobs/bench/bench_job.h"
#include "app/jobs/replay/replay_job.h"

/// Acceptance of a table's heads along a recording, in the form of a benchmark.
namespace draftscope {

/// Rows with tau and active rows alone; the speeds are 0.
struct ReplayedRows {
    BenchReport bench;
    std::vector<std::string> estimates;  ///< why some figures are estimates; empty = exact
};
/// Replays `methods`, "DRAFTER x HEAD", or "none", whose tau is 1. Prompts of other tasks than `tasks` are
/// left out. Drafter and heads of `config` are not used.
Result<ReplayedRows> replay_rows(ReplayConfig config, const RunConfig& run,
                                 std::span<const std::string> methods, std::span<const std::string> tasks,
                                 const JobHooks& hooks);

}  // namespace draftscope
