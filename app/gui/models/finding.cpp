#include "app/gui/models/finding.h"

#include <algorithm>
#include <vector>

#include "capture/queries.h"
#include "capture/rejections.h"

namespace draftscope {

std::optional<std::size_t> find_marked_round(const Snapshot& snapshot, RowId run_id, std::size_t from,
                                             int step, RoundMark mark) {
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

}  // namespace draftscope
