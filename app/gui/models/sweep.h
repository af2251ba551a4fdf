#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stats/sweep_table.h"

/// Model of the Sweep and Advisor panels: settings against their parameters, front and advice. A row is a
/// setting's place in the list of settings.
namespace draftscope {

/// The ranked settings of a sweep.
using SweepSettings = std::span<const SweepSetting>;

/// The range of an axis, which holds the added values.
struct ValueRange {
    double low = 0, high = 0;
    bool any = false;
    void add(double value);
    void add(const Estimate& estimate);
    void widen(double share);
    /// Returns a value's position, clamped to 0..1.
    double at(double value) const;
};

/// Returns the rows of a batch.
std::vector<std::size_t> rows_of_batch(SweepSettings settings, int batch);
/// Returns the batch sizes, ascending.
std::vector<int> sweep_batches(SweepSettings settings);

/// A parameter: of head specs ("v", "rank"), or of the tree ("levels", "top-k", "nodes").
struct SweepParameter {
    std::string name;
    std::vector<double> values;  ///< ascending
};
/// Returns a setting's value of a parameter; absent if its spec does not name it.
std::optional<double> parameter_value(const SweepSetting& setting, std::string_view name);
/// Returns the parameters with at least two values, those of heads first.
std::vector<SweepParameter> sweep_parameters(SweepSettings settings, int batch);

/// Which settings a plot takes.
struct SweepFilter {
    int batch = 1;
    /// A row whose other parameters the plotted settings share; absent = the fastest setting of each value.
    std::optional<std::size_t> like;
    bool one_per_head = false;  ///< curves take the fastest size of a head, else there is one for each
};
/// A line of settings of one drafter and head, one for each value.
struct SweepCurve {
    std::string name;
    std::string head;                                    ///< for its colour
    std::vector<std::pair<double, std::size_t>> points;  ///< value and row, ascending
    int same_colour = 0;                                 ///< number of earlier curves of its head
};
/// Returns which labels of an axis fit without overlaps. `places` are their centres, ascending; the last one
/// stays.
std::vector<bool> fitting_labels(std::span<const float> places, std::span<const float> widths, float gap);
/// Returns the curves against a parameter, fastest first. A head's own parameter joins the head's sizes in
/// one curve.
std::vector<SweepCurve> sweep_curves(SweepSettings settings, std::string_view parameter,
                                     const SweepFilter& filter);

/// An oracle's value in one figure, a horizontal line above curves.
struct SweepOracleLine {
    std::string name;  ///< "oracle of eagle3 x full"
    std::string head;  ///< for its colour
    double value = 0;
    bool name_at_right = false;  ///< where the curves' ends are farther from it
};
/// Returns the highest oracle of each drafter of the curves, by speed-up or by tau. Oracles are of chains, so
/// a tree may accept more.
std::vector<SweepOracleLine> sweep_oracle_lines(SweepSettings settings, std::span<const OracleLine> oracles,
                                                std::span<const SweepCurve> curves, bool speed);

/// What plots of a batch show.
struct SweepBatchModel {
    std::vector<std::size_t> rows, front;
    std::vector<SweepParameter> parameters;
};

/// Curves against a parameter with the oracles above them.
struct SweepCurveModel {
    std::vector<SweepCurve> curves;  ///< the fastest ones
    std::size_t left_out = 0;        ///< slower curves
    std::vector<double> values;      ///< of the parameter in the curves, ascending
    std::vector<SweepOracleLine> speed_oracles, tau_oracles;
};
SweepCurveModel build_sweep_curves(SweepSettings settings, std::span<const OracleLine> oracles,
                                   std::string_view parameter, const SweepFilter& filter);

/// The fastest setting for each pair of values.
struct SweepHeatMap {
    std::vector<double> xs, ys;                    ///< ascending
    std::vector<std::optional<std::size_t>> rows;  ///< [ys, xs]
    double low = 0, high = 0;                      ///< speed-ups of the rows
};
SweepHeatMap sweep_heat_map(SweepSettings settings, std::string_view x, std::string_view y, int batch);

/// Returns the rows of the Pareto front from the shortest round to the longest.
std::vector<std::size_t> sweep_front(SweepSettings settings, int batch);

/// Returns labels and figures of a setting: tau, speed, time of a round, and what limits the prediction.
std::vector<std::pair<std::string, std::string>> describe_setting(const SweepSetting& setting);

/// A setting that an advice speaks of.
struct AdviceLine {
    std::string role;  ///< "advised", "runner-up", "default", ...
    std::size_t row = 0;
};
/// Returns the settings by role: advised, fastest, runner-up, the same tree with the full head, the default.
/// A setting with several roles has one line.
std::vector<AdviceLine> advice_lines(SweepSettings settings, std::optional<std::size_t> chosen,
                                     std::optional<std::size_t> runner_up, std::optional<std::size_t> usual);
/// Returns the range of the lines' speed-ups, which contains plain decoding (1).
ValueRange advice_scale(SweepSettings settings, const std::vector<AdviceLine>& lines);

}  // namespace draftscope
