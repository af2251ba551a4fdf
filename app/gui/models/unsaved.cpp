#include "app/gui/models/unsaved.h"

#include <algorithm>

#include "app/gui/models/selection.h"
#include "capture/capture.h"

namespace draftscope {

void UnsavedRounds::update(const Snapshot& snapshot, bool kept) {
    const bool cleared = snapshot.source != source_ || snapshot.rounds.size() < known_rounds_;
    if (cleared) *this = {};
    source_ = snapshot.source;
    known_rounds_ = snapshot.rounds.size();
    for (const RunRow& run : snapshot.runs)
        if (known_.insert(run.id).second && kept) kept_.insert(run.id);
}

std::size_t UnsavedRounds::count(const Snapshot& snapshot) const {
    if (!snapshot.source.empty()) return 0;
    std::size_t rounds = 0;
    for (const RunRow& run : snapshot.runs) {
        if (kept_.contains(run.id)) continue;
        const RoundSpan span = rounds_of_run(snapshot, run.id);
        rounds += span.end - std::min(span.end, std::max(span.first, saved_rounds_));
    }
    return rounds;
}

}  // namespace draftscope
