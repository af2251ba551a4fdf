#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "app/gui/models/ui_state.h"
#include "capture/queries.h"
#include "capture/samples.h"

/// What the Phases panel draws: where a step's time goes, per step and in total.
namespace draftscope {

/// Mean of `steps` neighbouring steps. Parts add up to `step_ns`; the remainder is one of them.
struct PhaseBar {
    std::size_t first_step = 0;  ///< index into Snapshot::steps
    std::uint32_t steps = 0;
    std::uint32_t excluded = 0;                ///< of them, not in the statistics
    std::array<double, max_phases> part_ns{};  ///< by phase id, critical lane
    double step_ns = 0;
    double slowest_ns = 0;  ///< longest step of the bar
    int accepted = 0;       ///< draft tokens kept, summed over the bar's rounds
    int rounds = 0;
};

struct PhaseBars {
    std::vector<PhaseBar> bars;
    double tallest_ns = 0;  ///< of `step_ns`
    int steps_per_bar = 1;
    std::size_t first_step = 0, last_step = 0;  ///< half-open range of Snapshot::steps that is shown
};

struct PhaseTableRow {
    int phase_id = 0;
    std::string name;
    std::uint32_t rgb = 0;
    bool child = false;    ///< part of another phase: indented
    bool hatched = false;  ///< the remainder
    std::int64_t count = 0;
    double total_ms = 0, exposed_ms = 0, mean_us = 0, median_us = 0;
    double mad_us = 0;                     ///< median absolute deviation x 1.4826
    std::optional<double> p90_us, p99_us;  ///< absent: too few samples
    double share = 0;
    std::optional<double> gb_per_s;
    std::optional<double> dram_mb, needed_mb;  ///< per step: what GPU counters saw, what had to be moved (T3)
    std::optional<double> of_probe;            ///< part of what `doctor` measured the memory to give
};

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
    double total_step_ms = 0;
    std::int64_t counted_steps = 0;
    std::string caption;  ///< "312 steps; 2 warm-up, 3 paused excluded"
    double draft_share = 0, head_share = 0;
    std::string shares_text;                ///< "; drafting 41 % (head 22 %)"; "" while no step counts
    std::vector<CategoryShare> categories;  ///< empty unless there are at least two
};

/// Puts `more` behind `bars`.
void append_bars(PhaseBars& bars, const PhaseBars& more);
/// Steps [first, last) of one run as at most `max_bars` bars; steps of other runs in between are skipped.
PhaseBars build_phase_bars(const Snapshot& snapshot, RowId run_id, std::size_t first, std::size_t last,
                           int max_bars);
/// The steps to show: `count` of them around `selected_step` (or the newest, when it is not given), only of
/// `run_id`. Half-open.
struct StepWindow {
    std::size_t first = 0, last = 0;
};
StepWindow step_window(const Snapshot& snapshot, RowId run_id, std::optional<std::size_t> selected_step,
                       std::size_t count);
/// Builds the table of a run as it grows: a step's spans are looked at once, however often it is asked.
class PhasesBuilder {
  public:
    /// With a range: only the steps that overlap it, worked out anew.
    PhasesModel build(const Snapshot& snapshot, RowId run_id,
                      const std::optional<TimeRange>& range = std::nullopt);
    /// Steps whose spans were looked at so far, for tests.
    std::size_t steps_read() const { return samples_.steps_read(); }

  private:
    RunSamples samples_;
};
/// The same once.
PhasesModel build_phases(const Snapshot& snapshot, RowId run_id,
                         const std::optional<TimeRange>& range = std::nullopt);

/// Is this phase part of T_head (router + head + topk + gather and their children)?
bool is_head_phase(int phase_id);

}  // namespace draftscope
