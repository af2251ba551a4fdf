#include "engine/shadow/shadow_evaluator.h"

#include <algorithm>

#include "capture/head_traits.h"
#include "engine/sequence/round_rows.h"
#include "engine/shadow/shadow_drafter.h"
#include "engine/verify/tree_path.h"

namespace draftscope {
namespace {

/// The first `k` columns of `best` [rows, width].
std::vector<TokenId> first_columns(std::span<const TokenId> best, int width, int k) {
    std::vector<TokenId> out;
    for (std::size_t at = 0; k > 0 && at < best.size(); at += width)
        out.insert(out.end(), best.begin() + at, best.begin() + at + k);
    return out;
}

}  // namespace

void VerifiedLogits::add(int row, Rows<const float> logits, const TargetSample& choice) {
    if (rows_.empty()) first_ = row;
    Row& entry = rows_.emplace_back();
    if (!spare_.empty()) {
        entry.logits = std::move(spare_.back());
        spare_.pop_back();
    }
    entry.logits.assign(logits.row_data(0), logits.row_data(0) + logits.cols);
    entry.choice = choice;
}

void VerifiedLogits::drop_before(int row) {
    for (; !rows_.empty() && first_ < row; ++first_) {
        spare_.push_back(std::move(rows_.front().logits));
        rows_.pop_front();
    }
}

double VerifiedLogits::covered_prob(const DecodeContext& core, int row, DraftVocab& active, int level) const {
    const Row& entry = rows_[row - first_];
    return active.covered_prob(core.backend, entry.logits.data(), entry.choice, core.options.sampling, level);
}

std::vector<const ShadowHead*> aligned_heads(const DecodeOptions& options) {
    std::vector<const ShadowHead*> heads;
    for (const ShadowHead& shadow : options.shadows)
        if (shadow.aligned) heads.push_back(&shadow);
    return heads;
}

int best_tokens_for(std::span<const ShadowHead> shadows) {
    int best = 0;
    for (const ShadowHead& shadow : shadows)
        best = std::max(
            {best, shadow.head->target_tokens().at_prompt, shadow.head->target_tokens().at_verified});
    return best;
}

bool can_evaluate_shadows(const DecodeContext& core) {
    return core.rule->info().losslessness == Losslessness::exact && core.records.on() &&
           core.drafter.uses_head();
}

ShadowEvaluator::ShadowEvaluator(DecodeContext& core) : core_(core) {
    if (!can_evaluate_shadows(core)) return;
    const auto follow = [&](const ShadowHead& head, bool at_end) {
        heads_.push_back({head,
                          ReplayRunner(core.drafter, ReplayHead{head.head, false}, core.backend, core.phases,
                                       core.options.tree, core.target.config().context, core.vocab),
                          std::make_shared<DraftVocab>(head.head, core.vocab), at_end});
    };
    aligned_ = aligned_heads(core.options);
    for (const ShadowHead& shadow : core.options.shadows)
        if (!shadow.aligned) follow(shadow, false);
    if (core.options.full_shadow_ns > 0 && core.options.batch == 1 && core.full_head != nullptr &&
        core.full_head != core.head)
        follow({std::string(full_head_id), core.full_head}, true);
    best_k_ = std::min(best_tokens_for(core.options.shadows), core.vocab);
}

Status ShadowEvaluator::begin(Sequence& sequence) {
    if (!can_evaluate_shadows(core_) || sequence.done()) return {};
    auto& shadows = *(sequence.shadows = std::make_shared<SequenceShadows>());
    shadows.best = find_prompt_top_tokens(core_, best_k_).ids;
    const int prompt = sequence.outcome.prompt_tokens;
    for (const ShadowHead* shadow : aligned_) {
        const int k = std::min(shadow->head->target_tokens().at_prompt, core_.vocab);
        const std::vector<TokenId> best = first_columns(shadows.best, best_k_, k);
        shadows.aligned.push_back(
            shadow->head->begin_prompt(std::span(sequence.tokens).first(prompt),
                                       Rows<const TokenId>(best.data(), k == 0 ? 0 : prompt, k)));
    }
    if (heads_.empty()) return {};
    DS_TRY(append_features(sequence));
    const int slots = sequence.cache.slots();
    shadows.lanes.resize(heads_.size());
    for (std::size_t i = 0; i < heads_.size(); ++i) {
        SequenceShadows::Lane& lane = shadows.lanes[i];
        lane.drafter = core_.drafter.make_state(slots);
        lane.cursor.drafter = lane.drafter.get();
        lane.cursor.text.tokens = sequence.tokens;
        lane.cursor.text.prompt_tokens = prompt;
        lane.cursor.text.best = [texts = &shadows, width = best_k_](int row, int k) {
            const auto first = texts->best.begin() + static_cast<std::ptrdiff_t>(row) * width;
            return std::vector<TokenId>(first, first + k);
        };
        if (heads_[i].at_end)
            lane.cursor.text.covered_prob = [](int, const ActiveSet&, int) { return 1.0; };
        else if (keeps_logits())
            lane.cursor.text.covered_prob = [this, texts = &shadows, &lane](int row, const ActiveSet&,
                                                                            int level) {
                return texts->verified.covered_prob(core_, row, *lane.active, level);
            };
        heads_[i].runner.begin(lane.cursor);
        lane.active = lane.cursor.head ? std::make_shared<DraftVocab>(heads_[i].head.head, core_.vocab)
                                       : heads_[i].active;
    }
    return {};
}

/// The sequence itself keeps only the features of the slots verified last.
Status ShadowEvaluator::append_features(Sequence& sequence) {
    SequenceShadows& shadows = *sequence.shadows;
    if (sequence.device_rows > 0)
        return sequence.download_features(core_.backend, core_.feature_width(),
                                          core_.drafter.needs_hidden() ? shadows.hidden : shadows.aux);
    shadows.hidden.insert(shadows.hidden.end(), sequence.hidden.begin(), sequence.hidden.end());
    shadows.aux.insert(shadows.aux.end(), sequence.aux.begin(), sequence.aux.end());
    return {};
}

/// Keeps complete logits of the nodes that committed a token, because other heads' sets are read later.
void ShadowEvaluator::append_logits(const Round& round) {
    const Sequence& sequence = *round.sequence;
    const int root = static_cast<int>(sequence.tokens.size() - round.emitted.size()) - 1;
    for (std::size_t i = 0; i < round.nodes_with_token(); ++i) {
        const int node = round.acceptance.path[i];
        sequence.shadows->verified.add(root + static_cast<int>(i),
                                       core_.download_logits(round.first_row + node, 1), round.choices[node]);
    }
}

void ShadowEvaluator::drop_logits(Sequence& sequence) {
    SequenceShadows& shadows = *sequence.shadows;
    auto oldest = static_cast<int>(sequence.tokens.size());
    for (std::size_t i = 0; i < heads_.size(); ++i)
        if (!heads_[i].at_end) oldest = std::min(oldest, shadows.lanes[i].cursor.prefix - 1);
    // The root's row predicts the first token after it.
    for (const PendingTree& pending : shadows.pending)
        oldest = std::min(oldest, static_cast<int>(pending.first) - 1);
    shadows.verified.drop_before(oldest);
}

Status ShadowEvaluator::after_step(std::span<const Round> rounds) {
    if (heads_.empty() && aligned_.empty()) {
        for (const Round& round : rounds) evaluate_pending(*round.sequence, round.sequence->done());
        return {};
    }
    for (const Round& round : rounds) {
        SequenceShadows& shadows = *round.sequence->shadows;
        if (!heads_.empty()) DS_TRY(append_features(*round.sequence));
        shadows.round_ends.push_back(static_cast<int>(round.sequence->tokens.size()));
        if (keeps_logits()) append_logits(round);
        std::vector<TokenId> ids;
        if (best_k_ > 0) {
            find_top_tokens(core_, round, round.acceptance.path, best_k_, ids);
            shadows.best.insert(shadows.best.end(), ids.begin(), ids.end());
        }
        observe_aligned(round, ids);
        evaluate_pending(*round.sequence, round.sequence->done());
    }
    core_.phases.set_observer(nullptr);  // only the driving head can be stepped through
    Status status;
    for (std::size_t i = 0; i < heads_.size() && status.ok(); ++i)
        if (runs_now(i, *rounds.front().sequence)) status = run_self_paced(i, rounds);
    core_.phases.set_observer(&core_.gate);
    for (const Round& round : rounds) drop_logits(*round.sequence);
    return status;
}

/// `best` is [path, best_k_].
void ShadowEvaluator::observe_aligned(const Round& round, std::span<const TokenId> best) {
    for (std::size_t i = 0; i < aligned_.size(); ++i) {
        LmHead& head = *aligned_[i]->head;
        const int k = std::min(head.target_tokens().at_verified, core_.vocab);
        const std::vector<TokenId> path_best = first_columns(best, best_k_, k);
        head.on_verified(round.sequence->shadows->aligned[i].get(), round.tree,
                         {round.acceptance.path, round.acceptance.bonus, path_best, k});
    }
}

void ShadowEvaluator::evaluate_pending(Sequence& sequence, bool at_end) {
    if (!sequence.shadows || sequence.shadows->pending.empty()) return;
    SequenceShadows& shadows = *sequence.shadows;
    const std::span<const TokenId> tokens = sequence.tokens;
    std::vector<HeadEvalRow> rows;
    std::erase_if(shadows.pending, [&](PendingTree& pending) {
        const auto known = tokens.subspan(std::min(pending.first, tokens.size()));
        const auto accepted = follow_path(pending.tree, known).size() - 1;
        // A committed token that is not in the tree decides it.
        if (accepted == known.size() && !at_end) return false;
        // If the prompt ended before any token followed, the text does not decide the tree.
        if (known.empty()) return true;
        HeadEvalRow& row = rows.emplace_back(std::move(pending.row));
        row.accepted = static_cast<int>(accepted);
        row.committed = std::min(row.accepted + 1, static_cast<int>(known.size()));
        row.covered = row.committed;
        if (pending.active == nullptr) {
            row.covered_mass = 1.0;
            return true;
        }
        row.covered = 0;
        double covered_prob = 0;
        for (int i = 0; i < row.committed; ++i) {
            row.covered += pending.active->covers(known[i], i) ? 1 : 0;
            if (keeps_logits())
                covered_prob += shadows.verified.covered_prob(core_, static_cast<int>(pending.first) - 1 + i,
                                                              *pending.active, i);
        }
        if (keeps_logits()) row.covered_mass = covered_prob / row.committed;
        return true;
    });
    core_.records.evaluated(std::move(rows));
}

/// Returns whether a head drafts after this step. One that waits for the end of the text must fit in the
/// run's time for it; its rounds are forecast to take as long as calibration rounds.
bool ShadowEvaluator::runs_now(std::size_t index, const Sequence& sequence) const {
    if (!heads_[index].at_end) return true;
    const TimeNs forecast = sequence.outcome.rounds * core_.full_draft_ns;
    return sequence.done() && forecast > 0 && at_end_ns_ + forecast <= core_.options.full_shadow_ns;
}

/// Returns how many rounds of a sequence came after the one that committed its token `last`, counted from 1.
std::ptrdiff_t ShadowEvaluator::rounds_after(const Sequence& sequence, int last) {
    const std::vector<int>& ends = sequence.shadows->round_ends;
    return std::ranges::end(ends) - std::ranges::lower_bound(ends, last) - 1;
}

Status ShadowEvaluator::run_self_paced(std::size_t index, std::span<const Round> rounds) {
    ReplayRunner& runner = heads_[index].runner;
    const TimeNs start = monotonic_ns();
    std::vector<HeadEvalRow> rows;
    for (bool moving = true; moving;) {
        moving = false;
        // A text that was followed in part would have another tau.
        if (heads_[index].at_end && core_.gate.cancelled()) return {};
        std::vector<Sequence*> ready;
        for (const Round& round : rounds) {
            Sequence& sequence = *round.sequence;
            SequenceShadows::Lane& lane = sequence.shadows->lanes[index];
            lane.cursor.text.tokens = sequence.tokens;
            lane.cursor.text.ended = sequence.done();
            const int known = static_cast<int>(sequence.tokens.size());
            if (!lane.cursor.job && lane.cursor.prefix <= known - (sequence.done() ? 1 : 0))
                ready.push_back(&sequence);
        }
        if (!ready.empty()) DS_TRY(draft(index, ready));
        for (std::size_t r = 0; r < rounds.size(); ++r) {
            SequenceShadows::Lane& lane = rounds[r].sequence->shadows->lanes[index];
            const auto evaluated = runner.evaluate(lane.cursor);
            if (!evaluated) continue;
            rows.push_back(make_row(index, *evaluated, lane.head_ns));
            rows.back().round_id = core_.records.latest_round_id(r, rounds.size());
            if (heads_[index].at_end)
                rows.back().round_id -=
                    rounds_after(*rounds[r].sequence, evaluated->prefix + evaluated->committed);
            moving = true;
        }
    }
    core_.records.evaluated(std::move(rows));
    if (heads_[index].at_end) at_end_ns_ += monotonic_ns() - start;
    return {};
}

Status ShadowEvaluator::draft(std::size_t index, std::span<Sequence* const> sequences) {
    std::vector<ReplayCursor*> lanes;
    for (Sequence* sequence : sequences) {
        SequenceShadows::Lane& lane = sequence->shadows->lanes[index];
        lane.active->begin_round(lane.cursor.head.get());
        lanes.push_back(&lane.cursor);
    }
    const int d = core_.target.config().hidden;
    const auto features = [&](std::size_t i, DraftJob& job) -> Status {
        SequenceShadows& shadows = *sequences[i]->shadows;
        SequenceShadows::Lane& lane = shadows.lanes[index];
        const int slots = lane.cursor.prefix - 1;
        const auto part = [&](std::vector<float>& all, int width) {
            return Rows<const float>(all.data() + static_cast<std::ptrdiff_t>(lane.processed_slots) * width,
                                     slots - lane.processed_slots, width);
        };
        if (!shadows.hidden.empty()) job.new_hidden = part(shadows.hidden, d);
        if (!shadows.aux.empty()) job.new_aux = part(shadows.aux, core_.aux_width());
        lane.processed_slots = slots;
        return {};
    };
    core_.spans.collect();
    const std::size_t first = core_.spans.size();
    DS_TRY(heads_[index].runner.draft(lanes, features));
    core_.spans.collect();
    const TimeNs head_ns = core_.spans.head_ns(first);
    core_.spans.clear();  // they are no part of a step
    for (std::size_t i = 0; i < sequences.size(); ++i)
        sequences[i]->shadows->lanes[index].head_ns = split_evenly(head_ns, i, sequences.size());
    return {};
}

HeadEvalRow ShadowEvaluator::make_row(std::size_t index, const HeadRound& round, TimeNs head_ns) const {
    HeadEvalRow row;
    row.run_id = core_.records.run_id();
    row.head = heads_[index].head.text;
    row.mode = HeadMode::selfpaced;
    row.active_rows = round.active_rows;
    row.row_tokens = round.row_tokens;
    row.bytes = static_cast<std::int64_t>(round.bytes);
    row.flops = static_cast<std::int64_t>(round.flops);
    row.head_ns = head_ns;
    row.accepted = round.accepted;
    row.committed = round.committed;
    row.covered = round.covered;
    row.covered_mass = round.covered_mass;
    return row;
}

}  // namespace draftscope
