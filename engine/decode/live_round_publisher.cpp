#include "engine/decode/live_round_publisher.h"

#include <algorithm>

#include "engine/sequence/round_rows.h"

namespace draftscope {

LiveRoundPublisher::LiveRoundPublisher(DecodeContext& core) : core_(core) {
    core_.gate.set_hold_hook([this](const HoldPoint& point) { show(point); });
}

LiveRoundPublisher::~LiveRoundPublisher() {
    core_.gate.set_hold_hook({});
}

void LiveRoundPublisher::begin(std::span<const std::unique_ptr<Sequence>> sequences) {
    sequence_ = sequences.front().get();
    for (const auto& sequence : sequences)
        if (sequence->row.id == core_.gate.watch_prompt()) sequence_ = sequence.get();
    tree_.reset(sequence_->tokens.back());
    shown_ = &tree_;
    accepted_ = nullptr;
    start_ticks_ = ticks_now();
}

void LiveRoundPublisher::level_done(int sequence, int level, FunctionRef<DraftTree()> partial) {
    if (!core_.gate.paused() || sequence_ == nullptr || static_cast<int>(sequence_->number) != sequence)
        return;
    tree_ = partial();
    core_.gate.at_level(level);
}

void LiveRoundPublisher::set_accepted(std::span<const Round> rounds) {
    for (const Round& round : rounds)
        if (round.sequence == sequence_) accepted_ = &round;
}

void LiveRoundPublisher::show(const HoldPoint& point) {
    if (sequence_ == nullptr || !core_.records.on()) return;
    core_.records.pauses(core_.gate.take_pauses());
    LiveRound live;
    live.at = point;
    live.levels = core_.options.tree.levels();
    live.beam = shown_->beam;
    live.step.start_ns = core_.spans.to_run_time(start_ticks_);
    live.step.end_ns = core_.spans.to_run_time(ticks_now());
    live.step.paused_ns = core_.gate.paused_ns();
    live.step.excluded = Excluded::paused;
    RoundRow& round = live.partial.round;
    round.prompt_id = sequence_->row.id;
    round.ordinal = static_cast<int>(sequence_->outcome.rounds);
    round.context_length = static_cast<int>(sequence_->tokens.size());
    round.tree_nodes = shown_->size();
    round.tree_depth = shown_->max_depth();
    round.draft_tokens = shown_->size() - 1;
    if (accepted_ == nullptr || !core_.options.record_nodes) {
        live.partial.nodes = draft_rows(*shown_);
    } else {
        live.partial.nodes = node_rows(core_, *accepted_);
        live.partial.tops = top_rows(core_, *accepted_, std::min(num_top_tokens, core_.vocab));
        round.accepted = accepted_->accepted();
    }
    core_.records.live(std::move(live));
}

}  // namespace draftscope
