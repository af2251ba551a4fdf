#include "app/gui/models/selection.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/bisect.h"
#include "base/format_count.h"
#include "capture/queries.h"
#include "capture/run_setting.h"
#include "stats/speedup.h"

namespace draftscope {
namespace {

std::size_t first_round_at_or_after(const Snapshot& snapshot, RowId run_id) {
    return bisect(0, snapshot.rounds.size(),
                  [&](std::size_t i) { return snapshot.rounds[i].row.run_id < run_id; });
}

/// Sets the toolbar's speed-up and how it was measured.
void set_speedup(const Snapshot& snapshot, const RunRow& run, HeaderNumbers& numbers) {
    // Without an interval during a run: this is called after every round.
    BootstrapOptions options;
    if (run.ended == RunEnd::live) options.resamples = 0;
    const auto speed = compute_speedup(snapshot, run.id, options);
    if (speed) {
        numbers.speedup = fmt::format("{:.2f}", speed->ratio.value);
        if (const auto& interval = speed->ratio.interval)
            numbers.speedup_interval = fmt::format("{:.2f} .. {:.2f}", interval->low, interval->high);
        numbers.speedup_why = fmt::format(
            "{:.1f} tok/s against {:.1f} tok/s without a drafter, over the same prompts (turns: {}; "
            "conversations: {} of {}; baseline run {}).",
            speed->tokens_per_second, speed->plain_tokens_per_second, speed->prompts, speed->conversations,
            speed->conversations_of_run, fmt::join(speed->plain_runs, ", "));
    } else if (run.drafter == plain_drafter) {
        numbers.speedup_why = "Decoded without a drafter: the reference for the other runs' speed-ups.";
    } else if (const auto earlier = legacy_baseline(snapshot, run.id)) {
        numbers.speedup_why = fmt::format(
            "An earlier version measured this file's AR baseline ({:.1f} tok/s) over other prompts. Record "
            "the run again to get a speed-up.",
            *earlier);
    } else {
        numbers.speedup_why =
            "Not measured. Set \"AR baseline\" in the Session panel, or run the same prompts once with the "
            "drafter \"none\".";
    }
}

/// Returns the speeds of the newest counted steps, oldest first.
std::vector<float> recent_speeds(const Snapshot& snapshot, RowId run_id) {
    constexpr std::size_t count = 48;
    std::vector<float> speeds;
    const RoundSpan rounds = rounds_of_run(snapshot, run_id);
    for (std::size_t r = rounds.end; r > rounds.first && speeds.size() < count;) {
        const std::uint32_t index = snapshot.rounds[--r].step_index;
        const StepEntry& step = snapshot.steps[index];
        double tokens = snapshot.rounds[r].row.committed;
        while (r > rounds.first && snapshot.rounds[r - 1].step_index == index)
            tokens += snapshot.rounds[--r].row.committed;
        if (step.row.time_counts() && step.row.busy_ns() > 0)
            speeds.push_back(static_cast<float>(tokens / seconds(step.row.busy_ns())));
    }
    std::ranges::reverse(speeds);
    return speeds;
}

/// Returns false for a run that is still loading or in prefill: the selection stays.
bool may_take_selection(const Snapshot& snapshot, RowId run_id, RowId shown) {
    const RunRow* run = snapshot.run(run_id);
    const bool under_way = snapshot.in_flight != nullptr && !snapshot.in_flight->rounds.empty() &&
                           snapshot.in_flight->rounds[0].row.run_id == run_id;
    return under_way || rounds_of_run(snapshot, run_id).size() > 0 ||
           rounds_of_run(snapshot, shown).size() == 0 || (run != nullptr && run->ended != RunEnd::live);
}

/// Returns the newest round of a sequence in the last step; the newest round of all if it has none there.
std::size_t newest_round(const Snapshot& snapshot, const RoundSpan& rounds, RowId prompt_id) {
    const RowId last_step = snapshot.rounds[rounds.end - 1].row.step_id;
    for (std::size_t i = rounds.end; i-- > rounds.first && snapshot.rounds[i].row.step_id == last_step;)
        if (snapshot.rounds[i].row.prompt_id == prompt_id) return i;
    return rounds.end - 1;
}

}  // namespace

RowId newest_run(const Snapshot& snapshot) {
    for (auto run = snapshot.runs.rbegin(); run != snapshot.runs.rend(); ++run)
        if (!is_baseline(*run)) return run->id;
    return snapshot.runs.empty() ? 0 : snapshot.runs.back().id;
}

RoundSpan rounds_of_run(const Snapshot& snapshot, RowId run_id) {
    return {first_round_at_or_after(snapshot, run_id), first_round_at_or_after(snapshot, run_id + 1)};
}

const Snapshot* round_in_flight(const Snapshot& snapshot, const UiState& ui) {
    const Snapshot* flight = snapshot.in_flight.get();
    if (flight == nullptr || flight->rounds.empty()) return nullptr;
    return flight->rounds[0].row.run_id == ui.run_id ? flight : nullptr;
}

void sync_selection(const Snapshot& snapshot, UiState& ui) {
    const RowId newest = newest_run(snapshot);
    const bool replaced = ui.source != snapshot.source || snapshot.run(ui.run_id) == nullptr;
    if (replaced || (newest != ui.newest_run && may_take_selection(snapshot, newest, ui.run_id))) {
        ui.source = snapshot.source;
        ui.newest_run = newest;
        ui.run_id = newest;
        ui.round.reset();
        ui.in_flight = false;
        ui.range.reset();
        ui.follow = true;
    }
    const RoundSpan rounds = rounds_of_run(snapshot, ui.run_id);
    if (round_in_flight(snapshot, ui) != nullptr && (ui.follow || ui.in_flight)) {
        ui.select_in_flight();
        return;
    }
    ui.in_flight = false;
    if (rounds.size() == 0)
        ui.round.reset();
    else if (ui.follow || !ui.round || *ui.round < rounds.first || *ui.round >= rounds.end)
        ui.round = newest_round(snapshot, rounds, ui.stopped_prompt);
}

std::string round_position(const Snapshot& snapshot, const UiState& ui) {
    const RoundSpan rounds = rounds_of_run(snapshot, ui.run_id);
    if (in_flight_selected(snapshot, ui)) return fmt::format("Round {} in progress", rounds.size() + 1);
    if (!ui.round || rounds.size() == 0) return "No round yet";
    std::string text = fmt::format("Round {} of {}", *ui.round - rounds.first + 1, rounds.size());
    const PromptRow* prompt = snapshot.prompt(snapshot.rounds[*ui.round].row.prompt_id);
    if (const RunRow* run = snapshot.run(ui.run_id); prompt != nullptr && run != nullptr && run->batch > 1)
        text += fmt::format(", prompt {}", prompt->ordinal + 1);
    return text;
}

void step_selection(const Snapshot& snapshot, UiState& ui, int delta) {
    const RoundSpan rounds = rounds_of_run(snapshot, ui.run_id);
    const bool under_way = round_in_flight(snapshot, ui) != nullptr;
    if (rounds.size() == 0) return;
    const auto last = static_cast<std::ptrdiff_t>(rounds.end) - (under_way ? 0 : 1);
    const std::ptrdiff_t from =
        ui.in_flight ? last : static_cast<std::ptrdiff_t>(ui.round.value_or(rounds.end - 1));
    const auto to =
        static_cast<std::size_t>(std::clamp(from + delta, static_cast<std::ptrdiff_t>(rounds.first), last));
    if (to == rounds.end)
        ui.select_in_flight();
    else
        ui.select_round(to, rounds.end);
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
    ui.in_flight = false;
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
    const auto machine = nlohmann::json::parse(run->machine_json, nullptr, false);
    if (const auto cores = machine.find("cores"); cores != machine.end() && *cores != run->threads)
        numbers.speed_unit += ", " + format_count(run->threads, "thread");
    numbers.recent_speeds = recent_speeds(snapshot, run_id);
    set_speedup(snapshot, *run, numbers);
    return numbers;
}

std::string losses_text(const Snapshot& snapshot, RowId run_id) {
    std::map<std::string, std::int64_t> counts;
    for (const LossRow& loss : snapshot.losses)
        if (loss.run_id == run_id || run_id == 0) counts[loss.kind] += loss.count;
    if (counts.empty()) return "no records lost";
    std::string text = "lost:";
    for (const auto& [kind, count] : counts) text += fmt::format(" {} {}", count, kind);
    return text;
}

std::string short_name(std::string_view path, std::size_t max_length) {
    const std::size_t slash = path.find_last_of('/');
    std::string name(slash == std::string_view::npos ? path : path.substr(slash + 1));
    if (name.size() > max_length) name = name.substr(0, max_length - 1) + "…";
    return name;
}

std::string run_drafting(const RunRow& run, std::string_view separator) {
    if (run.drafter == plain_drafter) return "no drafter";
    std::string out = run.drafter;
    for (const std::string& part : {run.head, run.tree})
        if (!part.empty()) out.append(separator) += part;
    return out;
}

}  // namespace draftscope
