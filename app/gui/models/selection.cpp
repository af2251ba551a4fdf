#include "app/gui/models/selection.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "capture/queries.h"

namespace draftscope {
namespace {

constexpr std::string_view baseline_drafter = "none";

std::size_t first_round_at_or_after(const Snapshot& snapshot, RowId run_id) {
    std::size_t low = 0, high = snapshot.rounds.size();
    while (low < high) {
        const std::size_t middle = low + (high - low) / 2;
        if (snapshot.rounds[middle].row.run_id < run_id)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

const RunRow* baseline_of(const Snapshot& snapshot, const RunRow& run) {
    for (const RunRow& other : snapshot.runs)
        if (other.drafter == baseline_drafter && other.id != run.id && other.target == run.target &&
            other.backend == run.backend && other.precision == run.precision &&
            other.threads == run.threads && other.temperature == run.temperature && other.tier == run.tier &&
            other.batch == run.batch)
            return &other;
    return nullptr;
}

struct Baseline {
    double tokens_per_second = 0;
    std::string from;
};

/// Measured with the run, else by an autoregressive run on the same model, machine path and settings.
Baseline baseline_speed(const Snapshot& snapshot, const RunRow& run) {
    for (std::size_t i = snapshot.counters.size(); i-- > 0;) {
        const CounterRow& counter = snapshot.counters[i];
        if (counter.run_id == run.id && counter.name == baseline_counter)
            return {counter.value, "measured with this run, same prompts"};
    }
    const RunRow* other = baseline_of(snapshot, run);
    if (other == nullptr) return {};
    return {run_totals(snapshot, other->id).tokens_per_second,
            fmt::format("run {}, same model, threads and settings", other->id)};
}

}  // namespace

RoundSpan rounds_of_run(const Snapshot& snapshot, RowId run_id) {
    return {first_round_at_or_after(snapshot, run_id), first_round_at_or_after(snapshot, run_id + 1)};
}

void sync_selection(const Snapshot& snapshot, UiState& ui) {
    const RowId newest = snapshot.runs.empty() ? 0 : snapshot.runs.back().id;
    const bool replaced = ui.source != snapshot.source || snapshot.run(ui.run_id) == nullptr;
    if (replaced || newest != ui.newest_run) {
        ui.source = snapshot.source;
        ui.newest_run = newest;
        ui.run_id = newest;
        ui.round.reset();
        ui.range.reset();
        ui.follow = true;
    }
    const RoundSpan rounds = rounds_of_run(snapshot, ui.run_id);
    if (rounds.size() == 0)
        ui.round.reset();
    else if (ui.follow || !ui.round || *ui.round < rounds.first || *ui.round >= rounds.end)
        ui.round = rounds.end - 1;
}

void step_selection(const Snapshot& snapshot, UiState& ui, int delta) {
    const RoundSpan rounds = rounds_of_run(snapshot, ui.run_id);
    if (rounds.size() == 0) return;
    const auto last = static_cast<std::ptrdiff_t>(rounds.end) - 1;
    const auto from = static_cast<std::ptrdiff_t>(ui.round.value_or(rounds.end - 1));
    const std::ptrdiff_t to = std::clamp(from + delta, static_cast<std::ptrdiff_t>(rounds.first), last);
    ui.select_round(static_cast<std::size_t>(to), rounds.end);
}

RowId watched_prompt(const Snapshot& snapshot, const UiState& ui) {
    const RunRow* run = snapshot.run(ui.run_id);
    const bool chosen = run != nullptr && run->batch > 1 && run->ended == RunEnd::live && !ui.follow &&
                        ui.round && *ui.round < snapshot.rounds.size();
    return chosen ? snapshot.rounds[*ui.round].row.prompt_id : 0;
}

void select_run(const Snapshot& snapshot, UiState& ui, RowId run_id) {
    ui.run_id = run_id;
    ui.round.reset();
    ui.range.reset();
    ui.follow = run_id == ui.newest_run;
    sync_selection(snapshot, ui);
}

void set_follow(const Snapshot& snapshot, UiState& ui, bool follow) {
    ui.follow = follow;
    if (follow) sync_selection(snapshot, ui);
}

HeaderNumbers header_numbers(const Snapshot& snapshot, RowId run_id) {
    HeaderNumbers numbers;
    const RunRow* run = snapshot.run(run_id);
    if (run == nullptr) return numbers;
    const RunTotals totals = run_totals(snapshot, run_id);
    if (totals.rounds > 0) numbers.tau = fmt::format("{:.2f}", totals.tau);
    if (totals.tokens_per_second > 0)
        numbers.tokens_per_second = fmt::format("{:.1f}", totals.tokens_per_second);
    const Baseline baseline = baseline_speed(snapshot, *run);
    if (baseline.tokens_per_second > 0 && totals.tokens_per_second > 0) {
        numbers.speedup = fmt::format("{:.2f}", totals.tokens_per_second / baseline.tokens_per_second);
        numbers.speedup_why =
            fmt::format("{:.1f} tok/s here against {:.1f} tok/s autoregressive ({}).",
                        totals.tokens_per_second, baseline.tokens_per_second, baseline.from);
    } else {
        numbers.speedup_why =
            "Not measured: set 'AR baseline' in the Session panel, or run once with the drafter 'none'.";
    }
    return numbers;
}

std::string losses_text(const Snapshot& snapshot, RowId run_id) {
    std::map<std::string, std::int64_t> counts;
    for (const LossRow& loss : snapshot.losses)
        if (loss.run_id == run_id || run_id == 0) counts[loss.kind] += loss.count;
    if (counts.empty()) return "no losses";
    std::string text = "lost:";
    for (const auto& [kind, count] : counts) text += fmt::format(" {} {}", count, kind);
    return text;
}

std::string short_name(std::string_view path, std::size_t longest) {
    const std::size_t slash = path.find_last_of('/');
    std::string name(slash == std::string_view::npos ? path : path.substr(slash + 1));
    if (name.size() > longest) name = name.substr(0, longest - 1) + "…";
    return name;
}

}  // namespace draftscope
