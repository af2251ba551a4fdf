#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "capture/capture.h"
#include "profiler/compare.h"

/// What the Compare panel draws: the runs to choose from, and the ratios of two of them with their intervals
/// on one logarithmic scale.
namespace draftscope {

struct CompareRun {
    std::string source;  ///< Snapshot::source
    RowId run_id = 0;
    std::string label;  ///< "full.dscope: run 1, eagle2, full"
    bool live = false;
    bool baseline = false;  ///< the plain reference of another run
};
/// Runs of the capture that is shown, then those of the others that are open.
std::vector<CompareRun> comparable_runs(const Snapshot& shown,
                                        const std::vector<std::shared_ptr<const Snapshot>>& others);
/// The pair to begin with: the shown capture's last two runs, or its last with the first of another capture;
/// baselines only where there is nothing else. Indices into `runs`.
std::optional<std::pair<std::size_t, std::size_t>> first_pair(const std::vector<CompareRun>& runs);

struct ForestRow {
    const ComparedQuantity* quantity = nullptr;  ///< of the comparison that the model was built from
    bool phase = false;
    double ratio = 0;  ///< 0 = A has none
    std::optional<std::pair<double, double>> interval;
};
struct Forest {
    std::vector<ForestRow> rows;
    double low = 0.5, high = 2;  ///< of the scale; 1 lies between them
    std::vector<double> ticks;   ///< on it
    /// 0..1 of the scale's width; ratios beyond it stop at its ends.
    double at(double ratio) const;
};
/// `comparison` must outlive the result.
Forest build_forest(const Comparison& comparison);

}  // namespace draftscope
