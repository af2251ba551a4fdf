#include "app/gui/models/phases.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string_view>

#include "base/format_count.h"
#include "base/phase.h"
#include "base/phase_names.h"
#include "capture/quantile.h"
#include "capture/run_setting.h"

namespace draftscope {
namespace {

constexpr int backbone_phase_id = static_cast<int>(Phase::backbone);

const PhaseRow& phase_row(int id) {
    return phase_rows[id >= 0 && id < static_cast<int>(phase_rows.size()) ? static_cast<std::size_t>(id) : 0];
}

void add_step(PhaseBar& bar, const StepPhases& phases, const StepEntry& entry, const Snapshot& snapshot) {
    // Side-thread work while the main thread is idle counts as exposed time of its phase. It is subtracted
    // from the remainder, so that the parts add up to the step.
    double rest = static_cast<double>(phases.step_ns);
    for (std::size_t p = 0; p < bar.part_ns.size(); ++p) {
        if (static_cast<int>(p) == remainder_phase_id) continue;
        const double part = std::min(static_cast<double>(phases.ns[p]), rest);
        bar.part_ns[p] += part;
        rest -= part;
    }
    bar.part_ns[remainder_phase_id] += rest;
    bar.step_ns += static_cast<double>(phases.step_ns);
    bar.slowest_ns = std::max(bar.slowest_ns, static_cast<double>(phases.step_ns));
    ++bar.steps;
    if (!entry.row.time_counts()) ++bar.excluded;
    for (std::uint32_t r = 0; r < entry.rounds.count; ++r) {
        bar.accepted += snapshot.rounds[entry.rounds.first + r].row.accepted;
        ++bar.rounds;
    }
}

void to_mean(PhaseBar& bar) {
    if (bar.steps == 0) return;
    for (double& part : bar.part_ns) part /= bar.steps;
    bar.step_ns /= bar.steps;
}

std::string steps_caption(const Snapshot& snapshot, RowId run_id, std::int64_t counted, bool in_range) {
    std::int64_t by_reason[8] = {};
    for (const StepEntry& step : snapshot.steps)
        if (step.row.run_id == run_id) ++by_reason[static_cast<std::size_t>(step.row.excluded) % 8];
    std::string text = counted == 0 ? std::string("no counted steps yet") : format_count(counted, "step");
    if (in_range) text += " in the range (Esc clears it)";
    std::string excluded;
    for (const auto& [why, what] : {std::pair{Excluded::warmup, "warm-up"},
                                    {Excluded::paused, "paused"},
                                    {Excluded::shadow, "shadow"},
                                    {Excluded::untimed, "without a time"}})
        if (const std::int64_t n = by_reason[static_cast<std::size_t>(why)]; n > 0)
            excluded += fmt::format("{}{} {}", excluded.empty() ? "" : ", ", n, what);
    if (!excluded.empty()) text += "; " + excluded + " excluded";
    return text;
}

/// Returns a copy of the snapshot with only the steps that overlap the range, whose indices are `kept`.
Snapshot within(const Snapshot& snapshot, const TimeRange& range, std::vector<std::uint32_t>& kept) {
    Snapshot out = snapshot;
    LogTable<StepEntry> steps;
    kept.clear();
    for (std::uint32_t i = 0; i < snapshot.steps.size(); ++i) {
        const StepEntry& entry = snapshot.steps[i];
        if (entry.row.start_ns >= range.end_ns || entry.row.end_ns <= range.start_ns) continue;
        steps.push_back(entry);
        kept.push_back(i);
    }
    out.steps = steps;
    return out;
}

struct CategorySum {
    std::int64_t steps = 0;
    double step_ns = 0, backbone_ns = 0, head_ns = 0;
};

/// Returns the common category of a step's rounds; empty for mixed batches.
std::string step_category(const Snapshot& snapshot, const StepEntry& entry) {
    std::string category;
    for (std::uint32_t r = 0; r < entry.rounds.count; ++r) {
        const PromptRow* prompt = snapshot.prompt(snapshot.rounds[entry.rounds.first + r].row.prompt_id);
        if (prompt == nullptr || (r > 0 && prompt->category != category)) return {};
        category = prompt->category;
    }
    return category;
}

std::vector<CategoryShare> category_shares(const Snapshot& snapshot, RowId run_id,
                                           const RunSamples& samples) {
    std::set<std::string_view> categories;
    for (const auto& prompt : snapshot.prompts)
        if (prompt->run_id == run_id && !prompt->category.empty()) categories.insert(prompt->category);
    if (categories.size() < 2) return {};
    std::map<std::string, CategorySum> sums;
    std::vector<CategorySum*> of_step;  // parallel to samples.steps(); null = mixed, none, or no spans
    for (std::size_t i = 0; i < samples.steps().size(); ++i) {
        const StepEntry& step = snapshot.steps[samples.steps()[i]];
        const std::string category = step.row.sampled ? step_category(snapshot, step) : std::string();
        of_step.push_back(category.empty() ? nullptr : &sums[category]);
        if (of_step.back() == nullptr) continue;
        ++of_step.back()->steps;
        of_step.back()->step_ns += static_cast<double>(samples.step_ns()[i]);
    }
    const auto add = [&](int phase_id, double CategorySum::*field) {
        std::size_t at = 0;
        for (const PhaseSample& sample : samples.phase_samples(phase_id)) {
            while (samples.steps()[at] < sample.step) ++at;
            if (of_step[at] != nullptr) of_step[at]->*field += static_cast<double>(sample.exposed_ns);
        }
    };
    add(backbone_phase_id, &CategorySum::backbone_ns);
    for (int p = 0; p < max_phases; ++p)
        if (is_head_phase(p)) add(p, &CategorySum::head_ns);
    std::vector<CategoryShare> shares;
    if (sums.size() < 2) return shares;
    for (const auto& [category, sum] : sums) {
        if (sum.step_ns <= 0) continue;
        shares.push_back({category, sum.steps, sum.step_ns * 1e-6 / static_cast<double>(sum.steps),
                          sum.backbone_ns / sum.step_ns, sum.head_ns / sum.step_ns});
    }
    return shares;
}

PhaseTableRow table_row(const PhaseStats& stats, const std::optional<double>& probe) {
    const PhaseRow& phase = phase_row(stats.phase_id);
    PhaseTableRow row;
    row.phase_id = stats.phase_id;
    row.name = phase.name;
    row.child = phase.parent_id != 0;
    row.count = stats.count;
    row.total_ms = milliseconds(stats.total_ns);
    row.exposed_ms = milliseconds(stats.exposed_ns);
    if (stats.count > 0) row.mean_us = 1e3 * row.total_ms / static_cast<double>(stats.count);
    row.median_us = stats.median_ns * 1e-3;
    row.mad_us = stats.mad_ns * 1e-3;
    if (stats.p90_ns) row.p90_us = *stats.p90_ns * 1e-3;
    if (stats.p99_ns) row.p99_us = *stats.p99_ns * 1e-3;
    row.share = stats.share;
    if (stats.gb_per_s > 0) row.gb_per_s = stats.gb_per_s;
    if (probe && row.gb_per_s) row.of_probe = *row.gb_per_s / *probe;
    return row;
}

}  // namespace

bool is_head_phase(int phase_id) {
    const int parent = phase_row(phase_id).parent_id;
    const auto top = static_cast<Phase>(parent != 0 ? parent : phase_id);
    return top == Phase::router || top == Phase::head || top == Phase::topk || top == Phase::gather;
}

void append_bars(PhaseBars& bars, const PhaseBars& more) {
    bars.bars.insert(bars.bars.end(), more.bars.begin(), more.bars.end());
    bars.tallest_ns = std::max(bars.tallest_ns, more.tallest_ns);
}

StepWindow step_window(const Snapshot& snapshot, RowId run_id, std::optional<std::size_t> selected_step,
                       std::size_t count) {
    // Steps of one run are contiguous, except in files joined from shards: find the run's outer bounds.
    std::size_t last = snapshot.steps.size();
    while (last > 0 && snapshot.steps[last - 1].row.run_id != run_id) --last;
    std::size_t first = last;
    const std::size_t wanted = std::max<std::size_t>(count, 1);
    if (!selected_step || *selected_step >= last) {
        while (first > 0 && last - first < wanted && snapshot.steps[first - 1].row.run_id == run_id) --first;
        return {first, last};
    }
    std::size_t end = *selected_step + 1;
    first = *selected_step;
    while (end < last && end - *selected_step <= wanted / 2 && snapshot.steps[end].row.run_id == run_id)
        ++end;
    while (first > 0 && end - first < wanted && snapshot.steps[first - 1].row.run_id == run_id) --first;
    while (end < last && end - first < wanted && snapshot.steps[end].row.run_id == run_id) ++end;
    return {first, end};
}

std::string shown_steps_text(const Snapshot& snapshot, RowId run_id, const StepWindow& shown) {
    const StepWindow run = step_window(snapshot, run_id, std::nullopt, snapshot.steps.size());
    const std::size_t all = run.last - run.first, some = shown.last - shown.first;
    return some < all ? fmt::format("; bars: {} of {} steps", some, all) : std::string();
}

PhaseBars build_phase_bars(const Snapshot& snapshot, RowId run_id, std::size_t first, std::size_t last,
                           int max_bars) {
    PhaseBars out;
    last = std::min(last, snapshot.steps.size());
    first = std::min(first, last);
    const std::size_t room = std::max(max_bars, 1);
    out.steps_per_bar = static_cast<int>(std::max<std::size_t>((last - first + room - 1) / room, 1));
    PhaseBar bar;
    const auto flush = [&] {
        if (bar.steps == 0) return;
        to_mean(bar);
        out.tallest_ns = std::max(out.tallest_ns, bar.step_ns);
        out.bars.push_back(bar);
        bar = {};
    };
    for (std::size_t i = first; i < last; ++i) {
        const StepEntry& entry = snapshot.steps[i];
        if (entry.row.run_id != run_id || !entry.row.sampled) continue;
        if (bar.steps == 0) bar.first_step = i;
        add_step(bar, step_phases(snapshot, i), entry, snapshot);
        if (bar.steps == static_cast<std::uint32_t>(out.steps_per_bar)) flush();
    }
    flush();
    return out;
}

std::vector<PhaseSample> PhasesBuilder::samples(int phase_id) const {
    std::vector<PhaseSample> out = (in_range_ ? range_samples_ : samples_).phase_samples(phase_id);
    if (in_range_)
        for (PhaseSample& sample : out) sample.step = range_steps_[sample.step];
    return out;
}

double PhaseHistogram::place(double us) const {
    const auto scaled = [&](double x) { return logarithmic ? std::log(std::max(x, 1e-3)) : x; };
    const double low = scaled(bins.front().low_us), high = scaled(bins.back().high_us);
    return std::clamp((scaled(us) - low) / (high - low), 0.0, 1.0);
}

PhaseHistogram build_phase_histogram(std::span<const PhaseSample> samples, bool logarithmic, int count,
                                     std::optional<std::size_t> selected_step) {
    PhaseHistogram out;
    out.logarithmic = logarithmic;
    if (samples.empty()) return out;
    std::vector<double> times;
    for (const PhaseSample& sample : samples) {
        times.push_back(static_cast<double>(sample.busy_ns) * 1e-3);
        if (selected_step && sample.step == *selected_step) out.selected_us = times.back();
    }
    const auto [least, largest] = std::ranges::minmax(times);
    const double low = std::max(least, logarithmic ? 1e-3 : 0.0);  // in us; the clock's resolution is 1 ns
    const double high = std::max(largest, low * 1.01 + 1e-3);
    out.bins.resize(static_cast<std::size_t>(std::max(count, 1)));
    const auto edge = [&](std::size_t i) {
        const double part = static_cast<double>(i) / static_cast<double>(out.bins.size());
        return logarithmic ? low * std::pow(high / low, part) : low + (high - low) * part;
    };
    for (std::size_t i = 0; i < out.bins.size(); ++i) {
        out.bins[i].low_us = edge(i);
        out.bins[i].high_us = edge(i + 1);
    }
    for (std::size_t i = 0; i < samples.size(); ++i) {
        const auto at = static_cast<std::size_t>(out.place(times[i]) * static_cast<double>(out.bins.size()));
        PhaseHistogram::Bin& bin = out.bins[std::min(at, out.bins.size() - 1)];
        out.tallest = std::max(out.tallest, ++bin.steps);
        if (times[i] <= bin.slowest_us) continue;
        bin.slowest = samples[i].step;
        bin.slowest_us = times[i];
    }
    out.steps = static_cast<std::int64_t>(samples.size());
    out.median_us = quantile(times, 0.5);
    if (times.size() >= min_samples_for_p90) out.p90_us = quantile(times, 0.9);
    if (times.size() >= min_samples_for_p99) out.p99_us = quantile(times, 0.99);
    return out;
}

PhasesModel PhasesBuilder::build(const Snapshot& whole, RowId run_id, const std::optional<TimeRange>& range) {
    PhasesModel model;
    const RunRow* run = whole.run(run_id);
    if (run == nullptr) {
        model.empty_text = "No run yet. Phase times appear with the first round.";
        return model;
    }
    const StepWindow newest = step_window(whole, run_id, std::nullopt, 1);
    if (newest.first == newest.last) {
        model.empty_text = run->ended == RunEnd::live
                               ? "This run has no steps yet: prefill is still running."
                               : "No steps were recorded. Phase times are sums over the steps of a run.";
        return model;
    }
    if (whole.steps[newest.first].row.excluded == Excluded::untimed) {
        model.empty_text = "The file that was imported has no times of the rounds.";
        return model;
    }
    if (run->acceptance == imported_acceptance && !whole.steps[newest.first].row.sampled) {
        model.empty_text = "The imported file has times of whole rounds, not of their phases.";
        return model;
    }
    if (run->acceptance == "replayed" && whole.steps[newest.first].row.busy_ns() <= 0) {
        model.empty_text = "The rounds of this run were replayed along a recording: they have no times.";
        return model;
    }
    const Snapshot part = range ? within(whole, *range, range_steps_) : Snapshot();
    const Snapshot& snapshot = range ? part : whole;
    in_range_ = range.has_value();
    if (range) range_samples_ = {};
    RunSamples& samples = range ? range_samples_ : samples_;
    samples.update(snapshot, run_id);
    const std::optional<double> probe = probed_gb_per_s(*whole.run(run_id));
    double draft_share = 0, head_share = 0;
    for (const PhaseStats& stats : samples.stats()) {
        model.rows.push_back(table_row(stats, probe));
        if (stats.phase_id == remainder_phase_id) model.counted_steps = stats.count;
        if (stats.phase_id == backbone_phase_id || is_head_phase(stats.phase_id)) draft_share += stats.share;
        if (is_head_phase(stats.phase_id)) head_share += stats.share;
    }
    if (model.counted_steps > 0)
        model.shares_text =
            fmt::format("; drafting {:.0f} % (head {:.0f} %)", 100 * draft_share, 100 * head_share);
    model.caption = steps_caption(snapshot, run_id, model.counted_steps, range.has_value());
    model.categories = category_shares(snapshot, run_id, samples);
    return model;
}

}  // namespace draftscope
