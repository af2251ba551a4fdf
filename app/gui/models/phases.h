#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "app/gui/models/selection.h"
#include "capture/queries.h"
#include "capture/samples.h"

/// Model of the Phases panel: the time of each phase, per step and in total.
namespace draftscope {

/// Mean of `steps` consecutive steps. The parts, including the remainder, add up to `step_ns`.
struct PhaseBar {
    std::size_t first_step = 0;  ///< index into Snapshot::steps
    std::uint32_t steps = 0;
    std::uint32_t excluded = 0;                ///< steps excluded from statistics
    std::array<double, max_phases> part_ns{};  ///< exposed time by phase id
    double step_ns = 0;
    double slowest_ns = 0;  ///< longest step of the bar
    int accepted = 0;       ///< accepted draft tokens, summed over the rounds
    int rounds = 0;
};

struct PhaseBars {
    std::vector<PhaseBar> bars;
    double tallest_ns = 0;  ///< maximum of `step_ns`
    int steps_per_bar = 1;
};

struct PhaseTableRow {
    int phase_id = 0;
    std::string name;
    bool child = false;  ///< part of another phase, indented
    std::int64_t count = 0;
    double total_ms = 0, exposed_ms = 0, mean_us = 0, median_us = 0;
    double mad_us = 0;                     ///< median absolute deviation x 1.4826
    std::optional<double> p90_us, p99_us;  ///< absent with too few samples
    double share = 0;
    std::optional<double> gb_per_s;
    std::optional<double> of_probe;  ///< fraction of the bandwidth measured by `doctor`
};

/// Drafting's share of the step time, by prompt category.
struct CategoryShare {
    std::string category;
    std::int64_t steps = 0;
    double step_ms = 0;   ///< mean
    double backbone = 0;  ///< shares of the step time
    double head = 0;      ///< router + head + topk + gather, exposed
    double draft() const { return backbone + head; }
};

struct PhasesModel {
    std::string empty_text;
    std::vector<PhaseTableRow> rows;
    std::int64_t counted_steps = 0;
    std::string caption;                    ///< "312 steps; 2 warm-up, 3 paused excluded"
    std::string shares_text;                ///< "; drafting 41 % (head 22 %)"; "" without counted steps
    std::vector<CategoryShare> categories;  ///< empty for fewer than two
};

/// Appends `more` to `bars`.
void append_bars(PhaseBars& bars, const PhaseBars& more);
/// Builds at most `max_bars` bars of the steps [first, last) of one run. Steps of other runs are skipped.
PhaseBars build_phase_bars(const Snapshot& snapshot, RowId run_id, std::size_t first, std::size_t last,
                           int max_bars);
/// Range of `count` steps of one run around `selected_step`, or up to the newest step if absent. Half-open.
struct StepWindow {
    std::size_t first = 0, last = 0;
};
StepWindow step_window(const Snapshot& snapshot, RowId run_id, std::optional<std::size_t> selected_step,
                       std::size_t count);
/// Returns "; bars: 187 of 612 steps" if the window leaves out steps of the run, else "".
std::string shown_steps_text(const Snapshot& snapshot, RowId run_id, const StepWindow& shown);
/// Counted steps by the time of one phase, in bins of equal width.
struct PhaseHistogram {
    struct Bin {
        double low_us = 0, high_us = 0;
        std::int64_t steps = 0;
        std::uint32_t slowest = 0;  ///< its slowest step, an index into Snapshot::steps
        double slowest_us = -1;
    };
    std::vector<Bin> bins;  ///< empty without steps
    bool logarithmic = false;
    std::int64_t steps = 0, tallest = 0;  ///< of all bins, of the fullest one
    double median_us = 0;
    std::optional<double> p90_us, p99_us;  ///< absent with too few steps
    std::optional<double> selected_us;     ///< absent if the selected step is not counted

    /// Returns the place of a time between the lowest (0) and the highest (1) edge of the bins.
    double place(double us) const;
};
/// Builds a histogram of `count` bins of a phase's busy times, the values of the phase table.
PhaseHistogram build_phase_histogram(std::span<const PhaseSample> samples, bool logarithmic, int count,
                                     std::optional<std::size_t> selected_step);
/// Builds the phase table of a growing run incrementally: the spans of each step are read once.
class PhasesBuilder {
  public:
    /// Builds the table. With a range, only the steps that overlap it count, and nothing is reused.
    PhasesModel build(const Snapshot& snapshot, RowId run_id,
                      const std::optional<TimeRange>& range = std::nullopt);
    /// Returns a phase's samples of the last table. Their steps are indices into Snapshot::steps.
    std::vector<PhaseSample> samples(int phase_id) const;
    /// Returns the number of steps read so far. For tests.
    std::size_t steps_read() const { return samples_.steps_read(); }

  private:
    RunSamples samples_, range_samples_;
    std::vector<std::uint32_t> range_steps_;  ///< of range_samples_, as indices into Snapshot::steps
    bool in_range_ = false;
};
/// Returns true if the phase is part of T_head (router, head, topk, gather and their children).
bool is_head_phase(int phase_id);

}  // namespace draftscope
