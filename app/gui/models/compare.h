#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "capture/capture.h"
#include "stats/compare.h"

/// Model of the Compare panel: the runs to choose from, and the ratios of two runs. Ratios and intervals
/// share one logarithmic scale.
namespace draftscope {

struct CompareRun {
    std::string source;  ///< Snapshot::source
    RowId run_id = 0;
    std::string label;  ///< "full.dscope: run 1, eagle2, full"
    bool live = false;
    bool baseline = false;  ///< autoregressive baseline of another run
};
/// Returns the runs of the shown capture, then the runs of the other open captures.
std::vector<CompareRun> comparable_runs(const Snapshot& shown,
                                        const std::vector<std::shared_ptr<const Snapshot>>& others);
/// Returns the initial pair as indices into `runs`. If another capture is open, the pair is the shown
/// capture's last run and the other capture's first run; otherwise it is the shown capture's last two runs.
/// Baselines are used only if no other pair exists.
std::optional<std::pair<std::size_t, std::size_t>> first_pair(const std::vector<CompareRun>& runs);

/// One compared quantity.
struct ForestRow {
    const ComparedQuantity* quantity = nullptr;  ///< points into the comparison
    double ratio = 0;                            ///< B / A; 0 = A has no value
    std::optional<std::pair<double, double>> interval;
};
/// Ratios B / A on one scale: a forest plot.
struct Forest {
    std::vector<ForestRow> rows;
    double low = 0.5, high = 2;  ///< ends of the scale; low < 1 < high
    std::vector<double> ticks;   ///< ratios
    /// Returns a ratio's position on the scale, clamped to 0..1.
    double at(double ratio) const;
};
/// Builds the rows and the scale. `comparison` must outlive the result.
Forest build_forest(const Comparison& comparison);

}  // namespace draftscope
