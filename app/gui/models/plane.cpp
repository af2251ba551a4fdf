#include "app/gui/models/plane.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

namespace draftscope {
namespace {

constexpr double published_kappa = 0.25;  // SlimSpec, figure 3: Llama-3.1-8B on one H200
constexpr std::size_t least_units = 6;
constexpr int resamples = 500;
constexpr std::size_t block_rounds = 8;
constexpr int most_lines = 12;

std::string short_label(const HeadStats& stats) {
    std::string label = stats.head;
    if (stats.mode == HeadMode::selfpaced) label += " (shadow)";
    if (stats.mode == HeadMode::aligned) label += " (aligned)";
    if (stats.mode == HeadMode::calibration) label += " (calibration)";
    return label;
}

bool is_full(std::string_view head) {
    return head.substr(0, head.find(':')) == "full";
}

std::optional<std::size_t> round_index(const Snapshot& snapshot, RowId id) {
    std::size_t low = 0, high = snapshot.rounds.size();
    while (low < high) {
        const std::size_t middle = (low + high) / 2;
        if (snapshot.rounds[middle].row.id < id)
            low = middle + 1;
        else
            high = middle;
    }
    if (low < snapshot.rounds.size() && snapshot.rounds[low].row.id == id) return low;
    return std::nullopt;
}

bool counts(const Snapshot& snapshot, const HeadEvalRow& eval, std::size_t round) {
    const Excluded excluded = snapshot.steps[snapshot.rounds[round].step_index].row.excluded;
    if (excluded == Excluded::no) return true;
    return excluded == Excluded::shadow &&
           (eval.mode == HeadMode::aligned || eval.mode == HeadMode::calibration);
}

/// The mode whose `full` rows are the reference of this run, if it has any.
std::optional<HeadMode> reference_mode(const std::vector<HeadStats>& stats) {
    for (const HeadMode mode : {HeadMode::drive, HeadMode::selfpaced, HeadMode::calibration})
        for (const HeadStats& row : stats)
            if (row.mode == mode && is_full(row.head) && row.rounds > 0) return mode;
    return std::nullopt;
}

/// Units are prompts where there are enough of them, else blocks of neighbouring rounds; with calibration as
/// reference the calibration rounds themselves, in which both heads drafted from the same place.
class UnitTable {
  public:
    UnitTable(const Snapshot& snapshot, RowId run_id, HeadMode reference)
        : snapshot_(snapshot), run_id_(run_id), reference_(reference) {
        std::size_t prompts = 0;
        for (const auto& prompt : snapshot.prompts)
            if (prompt->run_id == run_id) ++prompts;
        by_prompt_ = prompts >= least_units;
    }
    std::string_view unit_name() const {
        if (paired()) return "calibration round";
        return by_prompt_ ? "prompt" : "block of 8 rounds";
    }

    std::vector<PairedUnit> units(const std::string& head, HeadMode mode) const {
        std::map<std::int64_t, PairedUnit> units;
        for (std::size_t i = 0; i < snapshot_.head_evals.size(); ++i) {
            const HeadEvalRow& eval = snapshot_.head_evals[i];
            const bool of_head = eval.head == head && eval.mode == mode;
            const bool of_full = is_full(eval.head) && eval.mode == reference_;
            if (eval.run_id != run_id_ || (!of_head && !of_full)) continue;
            const std::optional<std::size_t> round = round_index(snapshot_, eval.round_id);
            if (!round || (!paired() && !counts(snapshot_, eval, *round))) continue;
            PairedUnit& unit = units[unit_of(*round)];
            if (of_head) add(unit.head, eval);
            if (of_full) add(unit.full, eval);
        }
        std::vector<PairedUnit> out;
        for (const auto& [key, unit] : units)
            if (!paired() || unit.full.rounds > 0) out.push_back(unit);
        return out;
    }

  private:
    bool paired() const { return reference_ == HeadMode::calibration; }
    std::int64_t unit_of(std::size_t round) const {
        if (paired()) return static_cast<std::int64_t>(round);
        if (by_prompt_) return snapshot_.rounds[round].row.prompt_id;
        return static_cast<std::int64_t>(round / block_rounds);
    }
    static void add(HeadUnit& unit, const HeadEvalRow& eval) {
        unit.committed += eval.committed;
        unit.rounds += 1;
        unit.head_ns += static_cast<double>(eval.head_ns);
    }
    const Snapshot& snapshot_;
    RowId run_id_;
    HeadMode reference_;
    bool by_prompt_ = false;
};

PlanePoint make_point(const HeadStats& stats, double kappa) {
    PlanePoint point;
    point.head = stats.head;
    point.label = short_label(stats);
    point.mode = stats.mode;
    point.nu = stats.nu.value_or(1);
    point.rho_tau = stats.rho_tau.value_or(1);
    point.tau = stats.tau;
    point.reference = is_full(stats.head);
    point.estimate = !point.reference &&
                     (stats.mode == HeadMode::aligned || stats.reference == FullReference::calibration);
    point.predicted = predicted_speedup(point.rho_tau, point.nu, kappa);
    point.rounds = stats.rounds;
    point.active_rows = stats.active_rows;
    return point;
}

std::string missing(const HeadStats* live, bool has_reference) {
    if (live == nullptr) return "No round of this run counts yet: its head appears after the first ones.";
    if (!has_reference)
        return "No full-head reference: nu and rho_tau need calibration rounds with the full head, or a "
               "comparable run of `full` in the same capture.";
    return "The live head has no measured time yet.";
}

void add_points(PlaneModel& model, const Snapshot& snapshot, RowId run_id,
                const std::vector<HeadStats>& stats) {
    const std::optional<HeadMode> reference = reference_mode(stats);
    std::optional<UnitTable> table;
    if (reference) table.emplace(snapshot, run_id, *reference);
    bool any_interval = false;
    for (const HeadStats& row : stats) {
        if (!row.nu || !row.rho_tau) continue;
        PlanePoint point = make_point(row, model.kappa_shown);
        if (table && !point.reference)
            if (const auto intervals = bootstrap_ratios(table->units(row.head, row.mode))) {
                point.nu_interval = intervals->nu;
                point.rho_interval = intervals->rho_tau;
                any_interval = true;
            }
        model.points.push_back(std::move(point));
    }
    std::stable_sort(model.points.begin(), model.points.end(), [](const PlanePoint& a, const PlanePoint& b) {
        return (a.mode == HeadMode::drive) < (b.mode == HeadMode::drive);
    });
    if (any_interval)
        model.interval_text = fmt::format("bars: 95 % bootstrap by {}", table->unit_name());
    else if (!model.points.empty())
        model.interval_text = reference ? "no intervals: needs 6 prompts or 48 rounds"
                                        : "no intervals: full is from another run";
}

std::string number_text(const char* name, const std::optional<double>& value) {
    return value ? fmt::format("{} {:.2f}  ", name, *value) : std::string();
}

}  // namespace

std::vector<IsoLine> iso_lines(double kappa, const PlaneWindow& window) {
    std::vector<IsoLine> lines;
    if (window.nu_max <= window.nu_min || window.rho_max <= window.rho_min || kappa < 0) return lines;
    // The corners bound the levels: the speed-up grows with rho_tau and falls with nu.
    const double least = predicted_speedup(window.rho_min, window.nu_max, kappa);
    const double most = predicted_speedup(window.rho_max, window.nu_min, kappa);
    double step = 0.01;
    for (const double candidate : {0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0}) {
        step = candidate;
        if ((most - least) / step <= most_lines - 1) break;
    }
    const auto first = static_cast<long>(std::ceil(least / step)),
               last = static_cast<long>(std::floor(most / step));
    for (long k = first; k <= last && k - first < most_lines; ++k) {
        IsoLine line;
        line.speedup = static_cast<double>(k) * step;
        double from = window.nu_min, to = window.nu_max;
        const double slope = line.speedup * kappa / (1 + kappa), base = line.speedup / (1 + kappa);
        if (slope > 0) {
            from = std::max(from, (window.rho_min - base) / slope);
            to = std::min(to, (window.rho_max - base) / slope);
        } else if (base < window.rho_min || base > window.rho_max) {
            continue;
        }
        if (from >= to) continue;
        line.nu[0] = from;
        line.nu[1] = to;
        line.rho[0] = iso_rho_tau(line.speedup, from, kappa);
        line.rho[1] = iso_rho_tau(line.speedup, to, kappa);
        lines.push_back(line);
    }
    return lines;
}

std::optional<RatioIntervals> bootstrap_ratios(std::span<const PairedUnit> units) {
    CostModelOptions options;
    options.resamples = resamples;
    options.least_units = least_units;
    const AcceptanceCost cost = acceptance_cost(units, options);
    if (!cost.rho_tau || !cost.rho_tau->interval || !cost.nu || !cost.nu->interval) return std::nullopt;
    return RatioIntervals{*cost.rho_tau->interval, *cost.nu->interval};
}

PlaneModel build_plane(const Snapshot& snapshot, RowId run_id) {
    PlaneModel model;
    model.kappa_shown = published_kappa;
    const RunRow* run = snapshot.run(run_id);
    if (run == nullptr) {
        model.kappa_text = fmt::format("kappa {:.2f} (SlimSpec, figure 3)", published_kappa);
        model.missing_text = "No run yet. Published results are shown; your head joins them once it has run.";
        return model;
    }
    const std::vector<HeadStats> stats = head_stats(snapshot, run_id);
    const HeadStats* live = nullptr;
    bool has_reference = false;
    for (const HeadStats& row : stats) {
        if (row.mode == HeadMode::drive) live = &row;
        has_reference = has_reference || row.nu.has_value();
        if (row.kappa && !model.kappa) model.kappa = row.kappa;
    }
    if (model.kappa) model.kappa_shown = *model.kappa;
    model.kappa_text = model.kappa ? fmt::format("kappa {:.2f} (this run)", *model.kappa)
                                   : fmt::format("kappa {:.2f} (SlimSpec, figure 3)", published_kappa);
    add_points(model, snapshot, run_id, stats);
    if (live == nullptr || !live->nu || !live->rho_tau) model.missing_text = missing(live, has_reference);
    for (const HeadStats& row : stats)
        model.bars.push_back({short_label(row), row.head, row.tau, row.predicted_speedup,
                              row.mode == HeadMode::drive,
                              row.mode == HeadMode::aligned || row.reference == FullReference::calibration});
    return model;
}

std::vector<PublishedGroup> published_groups() {
    std::vector<PublishedGroup> groups;
    for (const PublishedResult& result : published_results()) {
        const std::string name = fmt::format("{}, {}", result.short_name, result.target);
        auto group = std::find_if(groups.begin(), groups.end(),
                                  [&](const PublishedGroup& g) { return g.name == name; });
        if (group == groups.end()) group = groups.insert(groups.end(), PublishedGroup{name, {}});
        group->rows.push_back(&result);
    }
    return groups;
}

std::vector<std::string> describe_published(const PublishedResult& result) {
    std::vector<std::string> lines;
    lines.push_back(fmt::format("{}{}{}", result.head, result.config.empty() ? "" : "  ", result.config));
    lines.push_back(number_text("nu", result.nu) + number_text("rho_tau", result.rho_tau) +
                    number_text("tau", result.tau));
    const std::string speed =
        number_text("x full", result.speedup_vs_full) + number_text("x autoregressive", result.speedup_vs_ar);
    if (!speed.empty()) lines.push_back(speed);
    lines.push_back(fmt::format("{}; {}", result.target, result.setup));
    lines.push_back(fmt::format("{}: {}", result.short_name, result.source));
    if (!result.derived.empty()) lines.push_back(fmt::format("derived: {}", result.derived));
    return lines;
}

}  // namespace draftscope
