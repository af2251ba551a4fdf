#include "app/gui/models/rounds.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "app/gui/models/selection.h"
#include "base/phase_names.h"
#include "capture/queries.h"

namespace draftscope {
namespace {

void set_dominant(RoundCell& cell, const StepPhases& phases) {
    TimeNs max_ns = phases.remainder_ns;
    cell.dominant_phase = remainder_phase_id;
    for (int id = 0; id < max_phases; ++id) {
        const TimeNs ns = phases.ns[id];
        if (id == remainder_phase_id || ns <= max_ns) continue;
        max_ns = ns;
        cell.dominant_phase = id;
    }
    cell.step_ns = phases.step_ns;
    cell.dominant_share =
        phases.step_ns > 0 ? static_cast<double>(max_ns) / static_cast<double>(phases.step_ns) : 0;
}

/// Gives the cell the row of its sequence, or that of one that has ended.
void set_row(RoundCell& cell, std::vector<RoundsModel::SequenceRow>& rows, RowId prompt_id) {
    auto row = std::ranges::find(rows, prompt_id, &RoundsModel::SequenceRow::prompt_id);
    cell.first_of_prompt = row == rows.end();
    if (row == rows.end())
        row = std::ranges::find_if(rows, [&](const auto& other) { return other.last_column < cell.column; });
    if (row == rows.end()) row = rows.insert(row, RoundsModel::SequenceRow());
    *row = {prompt_id, cell.column};
    cell.row = static_cast<int>(row - rows.begin());
}

}  // namespace

std::size_t RoundsModel::find_cell(std::size_t round_index) const {
    const auto cell = std::lower_bound(cells.begin(), cells.end(), round_index,
                                       [](const RoundCell& c, std::size_t index) { return c.index < index; });
    return cell == cells.end() || cell->index != round_index ? cells.size() : cell - cells.begin();
}

void update_rounds(RoundsModel& model, const Snapshot& snapshot, RowId run_id) {
    const RoundSpan span = rounds_of_run(snapshot, run_id);
    const bool grew = model.source == snapshot.source && model.run_id == run_id &&
                      model.cells.size() <= span.size() &&
                      (model.cells.empty() || model.cells.front().index == span.first);
    if (!grew) model = RoundsModel{};
    model.source = snapshot.source;
    model.run_id = run_id;
    for (std::size_t i = span.first + model.cells.size(); i < span.end; ++i) {
        const RoundEntry& entry = snapshot.rounds[i];
        RoundCell cell;
        cell.index = i;
        cell.ordinal = static_cast<int>(i - span.first) + 1;
        const bool same_step = i > span.first && snapshot.rounds[i - 1].step_index == entry.step_index;
        cell.column = same_step ? model.cells.back().column : model.columns++;
        set_row(cell, model.rows, entry.row.prompt_id);
        cell.accepted = entry.row.accepted;
        cell.committed = entry.row.committed;
        cell.depth = entry.row.tree_depth;
        cell.clipped = entry.row.clipped;
        cell.drafter = entry.row.drafter;
        if (entry.step_index < snapshot.steps.size()) {
            cell.excluded = snapshot.steps[entry.step_index].row.excluded;
            set_dominant(cell, step_phases(snapshot, entry.step_index));
            if (!snapshot.steps[entry.step_index].row.sampled || cell.step_ns <= 0) cell.dominant_phase = 0;
        }
        model.tallest = std::max({model.tallest, cell.accepted, cell.depth});
        model.cells.push_back(cell);
    }
    model.notes = find_round_notes(snapshot, run_id);
}

std::vector<OverviewColumn> build_overview(const RoundsModel& model, std::size_t columns) {
    std::vector<OverviewColumn> out;
    const std::size_t cells = model.cells.size();
    const std::size_t count = std::min(std::max<std::size_t>(columns, 1), cells);
    for (std::size_t c = 0; c < count; ++c) {
        OverviewColumn column;
        column.first = column.slowest = c * cells / count;
        column.count = (c + 1) * cells / count - column.first;
        for (std::size_t i = column.first; i < column.first + column.count; ++i) {
            const RoundCell& cell = model.cells[i];
            column.accepted += static_cast<double>(cell.accepted) / static_cast<double>(column.count);
            if (cell.excluded != Excluded::no || cell.step_ns <= column.slowest_ns) continue;
            column.slowest = i;
            column.slowest_ns = cell.step_ns;
        }
        out.push_back(column);
    }
    return out;
}

std::optional<std::size_t> instructive_rejection(const Snapshot& snapshot, RowId run_id) {
    std::optional<std::size_t> best;
    std::pair<int, float> best_rank;
    const RoundSpan span = rounds_of_run(snapshot, run_id);
    // The last round ends the text: its target's token is no alternative to a draft.
    for (std::size_t i = span.first; i + 1 < span.end; ++i) {
        const RoundRow& row = snapshot.rounds[i].row;
        if (row.clipped || row.accepted >= row.tree_depth) continue;
        const auto tree = snapshot.tree(i);
        int last = 0;  // of the accepted path
        for (const NodeRow& node : tree->nodes)
            if (node.accepted && node.depth == row.accepted) last = node.node;
        for (const NodeRow& node : tree->nodes) {
            if (node.parent != last || node.accepted) continue;
            const std::pair rank(row.accepted, node.draft_logprob);
            if (best && rank <= best_rank) continue;
            best = i;
            best_rank = rank;
        }
    }
    return best;
}

AcceptanceModel build_acceptance(const RoundsModel& rounds, const Snapshot& snapshot,
                                 const std::optional<TimeRange>& range) {
    AcceptanceModel model;
    model.histogram.resize(static_cast<std::size_t>(rounds.tallest) + 1);
    model.depths.resize(rounds.tallest);
    std::int64_t committed = 0;
    for (const RoundCell& cell : rounds.cells) {
        const RoundRow& row = snapshot.rounds[cell.index].row;
        if (range && (row.end_ns < range->start_ns || row.start_ns > range->end_ns)) continue;
        ++model.rounds;
        committed += cell.committed;
        ++model.histogram[cell.accepted];
        add_round(model.depths, cell.depth, cell.accepted, cell.clipped);
    }
    if (model.rounds > 0) model.tau = static_cast<double>(committed) / static_cast<double>(model.rounds);
    return model;
}

std::string no_rounds_text(bool in_range) {
    return in_range ? "No rounds in the range." : "No finished rounds yet.";
}

std::optional<RoundCell> cell_in_flight(const RoundsModel& model, const Snapshot& snapshot,
                                        const UiState& ui) {
    const Snapshot* flight = round_in_flight(snapshot, ui);
    if (flight == nullptr) return std::nullopt;
    const RoundRow& row = flight->rounds[0].row;
    RoundCell cell;
    cell.index = snapshot.rounds.size();
    cell.ordinal = static_cast<int>(model.cells.size()) + 1;
    cell.column = model.columns;
    const auto sequence = std::ranges::find(model.rows, row.prompt_id, &RoundsModel::SequenceRow::prompt_id);
    if (sequence != model.rows.end()) cell.row = static_cast<int>(sequence - model.rows.begin());
    cell.accepted = row.accepted;
    cell.depth = row.tree_depth;
    cell.excluded = Excluded::paused;
    set_dominant(cell, step_phases(*flight, 0));
    return cell;
}

std::string describe_in_flight(const RoundCell& cell, const Snapshot& flight) {
    const RoundRow& row = flight.rounds[0].row;
    return fmt::format("Round {}, in progress: {} drafted to depth {}; {:.2f} ms so far", cell.ordinal,
                       row.draft_tokens, row.tree_depth, milliseconds(cell.step_ns));
}

std::string describe_round(const RoundCell& cell) {
    std::string text =
        fmt::format("Round {}: {} of {} accepted, {} committed", cell.ordinal, cell.accepted,
                    cell.depth < 0 ? "unknown drafts" : std::to_string(cell.depth), cell.committed);
    if (cell.excluded == Excluded::untimed) return text + "; its time is not known";
    text += fmt::format("; {:.2f} ms", milliseconds(cell.step_ns));
    for (const PhaseRow& phase : phase_rows)
        if (phase.id == cell.dominant_phase && phase.id > 0 && cell.step_ns > 0)
            text += fmt::format(", {} {:.0f} %", phase.name, 100 * cell.dominant_share);
    if (!cell.drafter.empty()) text += "; drafted by " + cell.drafter;
    if (cell.clipped) text += "; clipped at the end of the output";
    if (cell.excluded != Excluded::no) text += fmt::format("; time not counted ({})", to_text(cell.excluded));
    return text;
}

}  // namespace draftscope
