#include "engine/session/shadows.h"

#include <algorithm>

#include "engine/session/beside.h"
#include "engine/session/round_rows.h"

namespace draftscope {

ShadowHeads::ShadowHeads(SessionCore& core) : core_(core) {
    const bool exact = rule_at(core.options.verify, core.options.sampling.temperature) == VerifyRule::match;
    if (!exact || !core.records.on() || !core.drafter.uses_head()) return;
    for (const ShadowHead& shadow : core.options.shadows) {
        best_k_ = std::max({best_k_, shadow.head->prefill_topk(), shadow.head->verify_topk()});
        followers_.emplace_back(core.drafter, FollowedHead{shadow.head, false}, core.exec, core.phases,
                                core.options.tree, core.target.config().context, core.vocab);
    }
    best_k_ = std::min(best_k_, core.vocab);
}

Status ShadowHeads::begin(Sequence& sequence) {
    if (followers_.empty() || sequence.done()) return {};
    auto& shadows = *(sequence.shadows = std::make_shared<SequenceShadows>());
    shadows.best =
        best_of_prompt(core_.exec, core_.target.lm_head(), core_.forward, core_.vocab, best_k_).ids;
    keep_features(sequence);
    const int slots = sequence.cache.slots();
    for (const Follower& follower : followers_) {
        SequenceShadows::Lane& lane = shadows.lanes.emplace_back();
        lane.drafter = core_.drafter.make_state(slots);
        lane.follow.drafter = lane.drafter.get();
        lane.follow.text.tokens = sequence.tokens;
        lane.follow.text.prompt_tokens = sequence.outcome.prompt_tokens;
        lane.follow.text.best = [kept = &shadows, width = best_k_](int row, int k) {
            const auto first = kept->best.begin() + static_cast<std::ptrdiff_t>(row) * width;
            return std::vector<TokenId>(first, first + k);
        };
        follower.begin(lane.follow);
    }
    return {};
}

/// The sequence's own features are those of the slots verified last.
void ShadowHeads::keep_features(Sequence& sequence) {
    SequenceShadows& shadows = *sequence.shadows;
    shadows.hidden.insert(shadows.hidden.end(), sequence.hidden.begin(), sequence.hidden.end());
    shadows.aux.insert(shadows.aux.end(), sequence.aux.begin(), sequence.aux.end());
}

Status ShadowHeads::follow(std::span<const Round> rounds) {
    if (followers_.empty()) return {};
    for (const Round& round : rounds) {
        keep_features(*round.sequence);
        if (best_k_ == 0) continue;
        const RoundFacts facts{round.tree,
                               round.choices,
                               round.acceptance.path,
                               round.emitted,
                               core_.logits(round.first_row, round.tree.size()),
                               core_.options.sampling};
        const std::vector<TokenId> ids = best_of_nodes(core_.exec, facts, round.acceptance.path, best_k_);
        SequenceShadows& shadows = *round.sequence->shadows;
        shadows.best.insert(shadows.best.end(), ids.begin(), ids.end());
    }
    core_.phases.set_observer(nullptr);  // stepping is about the driving head
    Status status;
    for (std::size_t i = 0; i < followers_.size() && status.ok(); ++i) status = follow_head(i, rounds);
    core_.phases.set_observer(&core_.gate);
    return status;
}

Status ShadowHeads::follow_head(std::size_t index, std::span<const Round> rounds) {
    std::vector<HeadEvalRow> rows;
    for (bool moving = true; moving;) {
        moving = false;
        std::vector<Sequence*> ready;
        for (const Round& round : rounds) {
            Sequence& sequence = *round.sequence;
            SequenceShadows::Lane& lane = sequence.shadows->lanes[index];
            lane.follow.text.tokens = sequence.tokens;
            lane.follow.text.ended = sequence.done();
            const int known = static_cast<int>(sequence.tokens.size());
            if (!lane.follow.drafted && lane.follow.prefix <= known - (sequence.done() ? 1 : 0))
                ready.push_back(&sequence);
        }
        if (!ready.empty()) DS_TRY(draft(index, ready));
        for (const Round& round : rounds) {
            SequenceShadows::Lane& lane = round.sequence->shadows->lanes[index];
            const auto judged = followers_[index].judge(lane.follow);
            if (!judged) continue;
            rows.push_back(row_of(index, *judged, lane.head_ns));
            moving = true;
        }
    }
    core_.records.evaluated(std::move(rows));
    return {};
}

Status ShadowHeads::draft(std::size_t index, std::span<Sequence* const> sequences) {
    std::vector<FollowLane*> lanes;
    for (Sequence* sequence : sequences) {
        SequenceShadows::Lane& lane = sequence->shadows->lanes[index];
        DS_TRY(catch_up(*sequence, lane));
        lanes.push_back(&lane.follow);
    }
    core_.spans.collect();
    const std::size_t first = core_.spans.size();
    DS_TRY(followers_[index].draft(lanes));
    core_.spans.collect();
    const TimeNs head_ns = core_.spans.head_ns(first, core_.spans.size());
    for (std::size_t i = 0; i < sequences.size(); ++i)
        sequences[i]->shadows->lanes[index].head_ns = part_of(head_ns, i, sequences.size());
    return {};
}

Status ShadowHeads::catch_up(Sequence& sequence, SequenceShadows::Lane& lane) {
    SequenceShadows& shadows = *sequence.shadows;
    const int d = core_.target.config().hidden, slots = lane.follow.prefix - 1;
    const int aux_width = static_cast<int>(core_.drafter.aux_layers().size()) * d;
    DraftJob job;
    job.tokens = std::span(sequence.tokens).first(static_cast<std::size_t>(lane.follow.prefix));
    job.state = lane.drafter.get();
    const auto part = [&](std::vector<float>& all, int width) {
        return Rows<const float>(all.data() + static_cast<std::ptrdiff_t>(lane.taken) * width,
                                 slots - lane.taken, width);
    };
    if (!shadows.hidden.empty()) job.new_hidden = part(shadows.hidden, d);
    if (!shadows.aux.empty()) job.new_aux = part(shadows.aux, aux_width);
    DraftContext context{core_.exec, core_.phases, nullptr, core_.options.tree, nullptr};
    DS_TRY(core_.drafter.catch_up(context, {&job, 1}));
    lane.taken = slots;
    return {};
}

HeadEvalRow ShadowHeads::row_of(std::size_t index, const HeadRound& round, TimeNs head_ns) const {
    HeadEvalRow row;
    row.run_id = core_.records.run_id();
    row.head = core_.options.shadows[index].text;
    row.mode = HeadMode::selfpaced;
    row.active_rows = round.active_rows;
    row.bytes = static_cast<std::int64_t>(round.bytes);
    row.head_ns = head_ns;
    row.accepted = round.accepted;
    row.committed = round.committed;
    row.covered = round.covered;
    return row;
}

}  // namespace draftscope
