#include "app/gui/models/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "app/gui/models/selection.h"
#include "capture/run_setting.h"

namespace draftscope {
namespace {

constexpr double min_half_width = 1.25;  ///< the scale shows at least 0.8 .. 1.25
constexpr double max_half_width = 8;     ///< limits the effect of one very wide interval

void add_runs(const Snapshot& snapshot, std::vector<CompareRun>& out) {
    const std::string file =
        snapshot.source.empty() ? "this window" : short_name(snapshot.source, std::string::npos);
    for (const RunRow& run : snapshot.runs)
        out.push_back(
            {snapshot.source, run.id,
             fmt::format("{}: run {}, {}, {}{}", file, run.id, or_unknown(run.drafter),
                         run.head.empty() ? "no head" : run.head, is_baseline(run) ? " (baseline)" : ""),
             run.ended == RunEnd::live, is_baseline(run)});
}

}  // namespace

std::vector<CompareRun> comparable_runs(const Snapshot& shown,
                                        const std::vector<std::shared_ptr<const Snapshot>>& others) {
    std::vector<CompareRun> out;
    add_runs(shown, out);
    for (const auto& other : others)
        if (other != nullptr && other->source != shown.source) add_runs(*other, out);
    return out;
}

std::optional<std::pair<std::size_t, std::size_t>> first_pair(const std::vector<CompareRun>& runs) {
    if (runs.size() < 2) return std::nullopt;
    std::vector<std::size_t> shown, others;
    for (std::size_t i = 0; i < runs.size(); ++i)
        if (!runs[i].baseline) (runs[i].source == runs.front().source ? shown : others).push_back(i);
    if (!shown.empty() && !others.empty()) return std::pair(shown.back(), others.front());
    if (shown.size() > 1) return std::pair(shown[shown.size() - 2], shown.back());
    return std::pair(runs.size() - 2, runs.size() - 1);
}

double Forest::at(double ratio) const {
    if (ratio <= 0) return 0;
    return std::clamp(std::log(ratio / low) / std::log(high / low), 0.0, 1.0);
}

Forest build_forest(const Comparison& comparison) {
    Forest out;
    double widest = min_half_width;
    const auto add = [&](const ComparedQuantity& quantity) {
        ForestRow row{&quantity, quantity.a > 0 ? quantity.ratio.value : 0, std::nullopt};
        if (quantity.ratio.interval && quantity.ratio.interval->low > 0)
            row.interval = std::pair(quantity.ratio.interval->low, quantity.ratio.interval->high);
        for (const double ratio : {row.ratio, row.interval ? row.interval->first : row.ratio,
                                   row.interval ? row.interval->second : row.ratio})
            if (ratio > 0) widest = std::max({widest, ratio, 1 / ratio});
        out.rows.push_back(row);
    };
    for (const ComparedQuantity* quantity : {&comparison.speed, &comparison.tau, &comparison.round_time})
        add(*quantity);
    std::ranges::for_each(comparison.phases, add);
    out.high = std::min(1.05 * widest, max_half_width);
    out.low = 1 / out.high;
    for (const double tick : {0.125, 0.25, 0.5, 0.8, 0.9, 1.0, 1.1, 1.25, 2.0, 4.0, 8.0}) {
        const bool fine = tick > 0.75 && tick < 1.3 && tick != 1.0;
        if (tick >= out.low && tick <= out.high && (!fine || out.high < 2.2)) out.ticks.push_back(tick);
    }
    return out;
}

}  // namespace draftscope
