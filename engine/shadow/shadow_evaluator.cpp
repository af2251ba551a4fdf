#include "engine/shadow/shadow_evaluator.h"

#include <algorithm>

#include "engine/decode/judged_rows.h"
#include "engine/record/round_rows.h"
#include "engine/shadow/shadow_drafter.h"

namespace draftscope {

std::vector<const ShadowHead*> aligned_heads(const DecodeOptions& options) {
    std::vector<const ShadowHead*> heads;
    for (const ShadowHead& shadow : options.shadows)
        if (shadow.aligned) heads.push_back(&shadow);
    return heads;
}

bool can_judge_beside(const SessionCore& core) {
    return rule_at(core.options.verify, core.options.sampling.temperature) == VerifyRule::match &&
           core.records.on() && core.drafter.uses_head();
}

ShadowHeads::ShadowHeads(SessionCore& core) : core_(core) {
    if (!can_judge_beside(core)) return;
    aligned_ = aligned_heads(core.options);
    for (const ShadowHead& shadow : core.options.shadows) {
        best_k_ = std::max({best_k_, shadow.head->prefill_topk(), shadow.head->verify_topk()});
        if (shadow.aligned) continue;
        heads_.push_back({&shadow,
                          Follower(core.drafter, FollowedHead{shadow.head, false}, core.exec, core.phases,
                                   core.options.tree, core.target.config().context, core.vocab),
                          ActiveSets(shadow.head, core.vocab)});
    }
    best_k_ = std::min(best_k_, core.vocab);
}

Status ShadowHeads::begin(Sequence& sequence) {
    if ((heads_.empty() && aligned_.empty()) || sequence.done()) return {};
    auto& shadows = *(sequence.shadows = std::make_shared<SequenceShadows>());
    shadows.best =
        best_of_prompt(core_.exec, core_.target.lm_head(), core_.forward, core_.vocab, best_k_).ids;
    begin_aligned(sequence);
    if (heads_.empty()) return {};
    keep_features(sequence);
    const int slots = sequence.cache.slots();
    shadows.lanes.resize(heads_.size());
    for (std::size_t i = 0; i < heads_.size(); ++i) {
        SequenceShadows::Lane& lane = shadows.lanes[i];
        lane.drafter = core_.drafter.make_state(slots);
        lane.follow.drafter = lane.drafter.get();
        lane.follow.text.tokens = sequence.tokens;
        lane.follow.text.prompt_tokens = sequence.outcome.prompt_tokens;
        lane.follow.text.best = [kept = &shadows, width = best_k_](int row, int k) {
            const auto first = kept->best.begin() + static_cast<std::ptrdiff_t>(row) * width;
            return std::vector<TokenId>(first, first + k);
        };
        if (keeps_rows())
            lane.follow.text.mass = [this, kept = &shadows, &lane](int row, const Head&, const HeadState*,
                                                                   int level) {
                return kept->verified.mass(core_.exec, row, *lane.active, core_.options.sampling, level);
            };
        heads_[i].follower.begin(lane.follow);
        if (lane.follow.head)
            lane.own_active = std::make_unique<ActiveSets>(heads_[i].head->head, core_.vocab);
        lane.active = lane.own_active ? lane.own_active.get() : &heads_[i].active;
    }
    return {};
}

void ShadowHeads::begin_aligned(Sequence& sequence) {
    SequenceShadows& shadows = *sequence.shadows;
    const int prompt = sequence.outcome.prompt_tokens;
    for (const ShadowHead* shadow : aligned_) {
        auto& state = shadows.aligned.emplace_back(shadow->head->make_state());
        const int k = std::min(shadow->head->prefill_topk(), core_.vocab);
        std::vector<TokenId> best;
        for (int row = 0; k > 0 && row < prompt; ++row) {
            const auto first = shadows.best.begin() + static_cast<std::ptrdiff_t>(row) * best_k_;
            best.insert(best.end(), first, first + k);
        }
        shadow->head->begin_prompt(state.get(),
                                   std::span(sequence.tokens).first(static_cast<std::size_t>(prompt)),
                                   Rows<const TokenId>(best.data(), k == 0 ? 0 : prompt, k));
    }
}

/// The sequence itself keeps only the features of the slots verified last.
void ShadowHeads::keep_features(Sequence& sequence) {
    SequenceShadows& shadows = *sequence.shadows;
    shadows.hidden.insert(shadows.hidden.end(), sequence.hidden.begin(), sequence.hidden.end());
    shadows.aux.insert(shadows.aux.end(), sequence.aux.begin(), sequence.aux.end());
}

/// Keeps complete logits of the nodes that committed a token, because other heads' sets are read later.
void ShadowHeads::keep_rows(const Round& round) {
    const Sequence& sequence = *round.sequence;
    const int root = static_cast<int>(sequence.tokens.size() - round.emitted.size()) - 1;
    const std::size_t nodes = std::min(round.acceptance.path.size(), round.emitted.size());
    for (std::size_t i = 0; i < nodes; ++i) {
        const int node = round.acceptance.path[i];
        sequence.shadows->verified.add(root + static_cast<int>(i), core_.logits(round.first_row + node, 1),
                                       round.choices[static_cast<std::size_t>(node)]);
    }
}

void ShadowHeads::forget_rows(Sequence& sequence) {
    SequenceShadows& shadows = *sequence.shadows;
    auto oldest = static_cast<int>(sequence.tokens.size());
    for (const SequenceShadows::Lane& lane : shadows.lanes) oldest = std::min(oldest, lane.follow.prefix - 1);
    if (const auto row = sequence.aligned.oldest_row()) oldest = std::min(oldest, static_cast<int>(*row));
    shadows.verified.forget_before(oldest);
}

Status ShadowHeads::follow(std::span<const Round> rounds) {
    if (heads_.empty() && aligned_.empty()) {
        for (const Round& round : rounds) judge_aligned(*round.sequence, round.sequence->done());
        return {};
    }
    for (const Round& round : rounds) {
        if (!heads_.empty()) keep_features(*round.sequence);
        if (keeps_rows()) keep_rows(round);
        std::vector<TokenId> ids;
        if (best_k_ > 0) {
            const RoundFacts facts = facts_of(core_, round);
            RowScratch scratch;
            best_of_nodes(core_.exec, facts, round.acceptance.path, best_k_, scratch, ids);
            SequenceShadows& shadows = *round.sequence->shadows;
            shadows.best.insert(shadows.best.end(), ids.begin(), ids.end());
        }
        observe_aligned(round, ids);
        judge_aligned(*round.sequence, round.sequence->done());
    }
    core_.phases.set_observer(nullptr);  // only the driving head can be stepped through
    Status status;
    for (std::size_t i = 0; i < heads_.size() && status.ok(); ++i) status = follow_head(i, rounds);
    core_.phases.set_observer(&core_.gate);
    for (const Round& round : rounds) forget_rows(*round.sequence);
    return status;
}

/// `best` is [path, best_k_].
void ShadowHeads::observe_aligned(const Round& round, std::span<const TokenId> best) {
    const std::vector<int>& path = round.acceptance.path;
    for (std::size_t i = 0; i < aligned_.size(); ++i) {
        Head& head = *aligned_[i]->head;
        const int k = std::min(head.verify_topk(), core_.vocab);
        std::vector<TokenId> mine;
        for (std::size_t p = 0; k > 0 && p < path.size(); ++p) {
            const auto first = best.begin() + static_cast<std::ptrdiff_t>(p) * best_k_;
            mine.insert(mine.end(), first, first + k);
        }
        head.observe(round.sequence->shadows->aligned[i].get(), round.tree,
                     {path, round.acceptance.bonus, mine, k, {}});
    }
}

void ShadowHeads::judge_aligned(Sequence& sequence, bool at_end) {
    if (sequence.aligned.empty()) return;
    const VerifiedRows* rows = keeps_rows() && sequence.shadows ? &sequence.shadows->verified : nullptr;
    core_.records.evaluated(
        sequence.aligned.judge(core_.exec, sequence.tokens, at_end, rows, core_.options.sampling));
}

void ShadowHeads::end(Sequence& sequence) {
    judge_aligned(sequence, true);
}

Status ShadowHeads::follow_head(std::size_t index, std::span<const Round> rounds) {
    const Follower& follower = heads_[index].follower;
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
        for (std::size_t r = 0; r < rounds.size(); ++r) {
            SequenceShadows::Lane& lane = rounds[r].sequence->shadows->lanes[index];
            const auto judged = follower.judge(lane.follow);
            if (!judged) continue;
            rows.push_back(row_of(index, *judged, lane.head_ns));
            rows.back().round_id = core_.records.latest_round_id(r, rounds.size());
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
        lane.active->begin_round(lane.follow.head.get());
        lanes.push_back(&lane.follow);
    }
    const int d = core_.target.config().hidden;
    const int aux_width = static_cast<int>(core_.drafter.aux_layers().size()) * d;
    const auto features = [&](std::size_t i, DraftJob& job) -> Status {
        SequenceShadows& shadows = *sequences[i]->shadows;
        SequenceShadows::Lane& lane = shadows.lanes[index];
        const int slots = lane.follow.prefix - 1;
        const auto part = [&](std::vector<float>& all, int width) {
            return Rows<const float>(all.data() + static_cast<std::ptrdiff_t>(lane.taken) * width,
                                     slots - lane.taken, width);
        };
        if (!shadows.hidden.empty()) job.new_hidden = part(shadows.hidden, d);
        if (!shadows.aux.empty()) job.new_aux = part(shadows.aux, aux_width);
        lane.taken = slots;
        return {};
    };
    core_.spans.collect();
    const std::size_t first = core_.spans.size();
    DS_TRY(heads_[index].follower.draft(lanes, features));
    core_.spans.collect();
    const TimeNs head_ns = core_.spans.head_ns(first, core_.spans.size());
    for (std::size_t i = 0; i < sequences.size(); ++i)
        sequences[i]->shadows->lanes[index].head_ns = part_of(head_ns, i, sequences.size());
    return {};
}

HeadEvalRow ShadowHeads::row_of(std::size_t index, const HeadRound& round, TimeNs head_ns) const {
    HeadEvalRow row;
    row.run_id = core_.records.run_id();
    row.head = heads_[index].head->text;
    row.mode = HeadMode::selfpaced;
    row.active_rows = round.active_rows;
    row.bytes = static_cast<std::int64_t>(round.bytes);
    row.head_ns = head_ns;
    row.accepted = round.accepted;
    row.committed = round.committed;
    row.covered = round.covered;
    row.covered_mass = round.covered_mass;
    return row;
}

}  // namespace draftscope
