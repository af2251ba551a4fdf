#include "app/gui/models/finding.h"

#include <algorithm>
#include <map>

#include "base/bisect.h"
#include "capture/queries.h"
#include "capture/rejections.h"

namespace draftscope {

std::optional<std::size_t> find_marked_round(const Snapshot& snapshot, RowId run_id, std::size_t from,
                                             int step, RoundMark mark) {
    if (mark == RoundMark::bookmark) {
        std::optional<std::size_t> before;
        for (const RoundNotes& notes : find_round_notes(snapshot, run_id)) {
            if (!notes.bookmark || notes.round == from) continue;
            if (notes.round > from) return step > 0 ? notes.round : before;
            if (step < 0) before = notes.round;
        }
        return before;
    }
    const RoundSpan rounds = rounds_of_run(snapshot, run_id);
    for (std::size_t r = from + static_cast<std::size_t>(step); r >= rounds.first && r < rounds.end;
         r += static_cast<std::size_t>(step)) {
        const auto ending = round_ending(snapshot, r);
        if (!ending) continue;
        if (mark == RoundMark::outside_set ? ending->stop == RoundStop::outside_set
                                           : is_rejection(ending->stop))
            return r;
        if (r == 0) break;
    }
    return std::nullopt;
}

std::optional<std::size_t> find_slow_round(const Snapshot& snapshot, RowId run_id,
                                           std::optional<std::size_t> from, std::optional<int> phase) {
    struct Timed {
        TimeNs ns;
        std::size_t round, step;
    };
    std::vector<Timed> steps;
    const RoundSpan rounds = rounds_of_run(snapshot, run_id);
    for (std::size_t r = rounds.first; r < rounds.end; ++r) {
        const std::size_t s = snapshot.rounds[r].step_index;
        if (!steps.empty() && steps.back().step == s) continue;
        const StepRow& row = snapshot.steps[s].row;
        if (!row.time_counts() || (phase && !row.sampled)) continue;
        const TimeNs ns =
            phase ? step_phases(snapshot, s).ns[static_cast<std::size_t>(*phase)] : row.busy_ns();
        if (ns > 0) steps.push_back({ns, r, s});
    }
    if (steps.empty()) return std::nullopt;
    std::ranges::stable_sort(steps, std::greater(), &Timed::ns);
    if (!from || *from >= snapshot.rounds.size()) return steps.front().round;
    const auto now = std::ranges::find(steps, snapshot.rounds[*from].step_index, &Timed::step);
    if (now == steps.end() || now + 1 == steps.end()) return steps.front().round;
    return (now + 1)->round;
}

bool is_of_bookmark(const NoteRow& note) {
    return note.text.starts_with(bookmark_note) || note.text == no_bookmark_note;
}

std::vector<RoundNotes> find_round_notes(const Snapshot& snapshot, RowId run_id) {
    const RoundSpan rounds = rounds_of_run(snapshot, run_id);
    std::map<std::size_t, RoundNotes> found;
    for (const NoteRow& note : snapshot.notes) {
        if (note.run_id != run_id || note.round_id == 0) continue;
        const std::size_t r = bisect(rounds.first, rounds.end, [&](std::size_t i) {
            return snapshot.rounds[i].row.id < note.round_id;
        });
        if (r == rounds.end || snapshot.rounds[r].row.id != note.round_id) continue;
        const std::string_view text = note.text;
        RoundNotes& notes = found[r];
        notes.round = r;
        if (text.starts_with(breakpoint_note)) notes.breakpoint = text.substr(breakpoint_note.size());
        if (text.starts_with(bookmark_note)) notes.bookmark = text.substr(bookmark_note.size());
        if (text == no_bookmark_note) notes.bookmark.reset();
    }
    std::vector<RoundNotes> out;
    for (auto& [round, notes] : found)
        if (notes.bookmark || !notes.breakpoint.empty()) out.push_back(std::move(notes));
    return out;
}

const RoundNotes* find_notes(const std::vector<RoundNotes>& notes, std::size_t round) {
    const auto found = std::ranges::find(notes, round, &RoundNotes::round);
    return found == notes.end() ? nullptr : &*found;
}

std::string describe_notes(const RoundNotes& notes) {
    std::string text;
    if (!notes.breakpoint.empty()) text = std::string(breakpoint_note) + notes.breakpoint;
    if (!notes.bookmark) return text;
    if (!text.empty()) text += "; ";
    return text + (notes.bookmark->empty() ? "bookmark" : std::string(bookmark_note) + *notes.bookmark);
}

}  // namespace draftscope
