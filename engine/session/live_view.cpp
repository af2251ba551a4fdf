#include "engine/session/live_view.h"

#include "engine/session/round_rows.h"

namespace draftscope {

LiveView::LiveView(SessionCore& core) : core_(core) {
    core_.gate.set_hold_hook([this](Phase phase, int level) { show(phase, level); });
}

LiveView::~LiveView() {
    core_.gate.set_hold_hook({});
}

void LiveView::begin(std::span<const std::unique_ptr<Sequence>> sequences) {
    watched_ = sequences.front().get();
    for (const auto& sequence : sequences)
        if (sequence->row.id == core_.gate.watched()) watched_ = sequence.get();
    tree_.reset(watched_->tokens.back());
    shown_ = &tree_;
}

void LiveView::level_done(int sequence, int level, FunctionRef<DraftTree()> partial) {
    if (!core_.gate.paused() || watched_ == nullptr || static_cast<int>(watched_->number) != sequence) return;
    tree_ = partial();
    core_.gate.at_level(level);
}

void LiveView::show(Phase phase, int level) {
    if (watched_ == nullptr || !core_.records.on()) return;
    RoundRecord partial;
    partial.round.prompt_id = watched_->row.id;
    partial.round.ordinal = static_cast<int>(watched_->outcome.rounds);
    partial.round.context_length = static_cast<int>(watched_->tokens.size());
    partial.round.tree_nodes = shown_->size();
    partial.round.tree_depth = shown_->max_depth();
    partial.round.drafted = shown_->size() - 1;
    partial.nodes = draft_rows(*shown_);
    core_.records.live(std::move(partial), phase, level);
}

}  // namespace draftscope
