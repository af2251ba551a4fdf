#pragma once

#include <optional>
#include <string>
#include <vector>

#include "capture/capture.h"
#include "capture/samples.h"
#include "profiler/bootstrap.h"

/// Statistics of a run's phases and steps: robust location and spread, quantiles where the sample allows
/// them, intervals from resampling conversations.
namespace draftscope {

struct Summary {
    std::int64_t n = 0;
    double total = 0, mean = 0, median = 0;
    double mad = 0;  ///< median absolute deviation x 1.4826: a standard deviation that outliers don't move
    double min = 0, max = 0;
    std::optional<double> p90, p99;  ///< type 7; absent under 36 and 368 samples
};
Summary summarise(std::vector<double> samples);

/// Leading steps that are still slower than the rest: the cut that makes the mean of what remains most
/// certain (MSER over batches of 5: White 1997), taken only when the median before it is more than 5 % and
/// three standard errors above the median after it (our choice), and never beyond a fifth of the steps. 0 =
/// none, or too few to tell.
std::size_t detect_warmup(const std::vector<TimeNs>& step_ns);

struct PhaseStatistics {
    int phase_id = 0;
    Summary ns;  ///< of the phase's busy time per step in which it occurred
    double exposed_ns = 0;
    double share = 0;  ///< exposed / time of counted steps
    double gb_per_s = 0;
    std::optional<Interval> median_interval, share_interval;
};

struct RunStatistics {
    std::size_t conversations = 0;  ///< with counted steps: what intervals resample
    std::size_t warmup_found = 0;   ///< leading counted steps that look like warm-up still
    std::size_t warmup_cut = 0;     ///< of them, left out of everything below
    Summary step_ns;
    std::optional<Interval> step_interval;  ///< of the median
    std::optional<Estimate> tau, tokens_per_second;
    std::vector<PhaseStatistics> phases;  ///< in table order
};
/// `cut_warmup` leaves out what detect_warmup finds, beside the steps that were recorded as warm-up.
RunStatistics run_statistics(const Snapshot& snapshot, RowId run_id, bool cut_warmup = false,
                             const BootstrapOptions& options = {});

}  // namespace draftscope
