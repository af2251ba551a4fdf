#include "engine/decode/decode_step.h"

#include <algorithm>
#include <numeric>

#include "base/numel.h"
#include "engine/draft/tree_levels.h"
#include "engine/sequence/round_rows.h"
#include "engine/verify/verification.h"

namespace draftscope {

Status DecodeStep::step(std::span<const std::unique_ptr<Sequence>> sequences) {
    core_.take_paused_ns();
    core_.spans.clear();
    core_.phases.set_round(static_cast<std::int32_t>(totals_.steps));
    rounds_.clear();
    for (const auto& sequence : sequences) {
        const auto index = static_cast<int>(rounds_.size());
        rounds_.add().reset(*sequence, index, core_.options.tree.levels() + 1);
    }
    live_.begin(sequences);
    const std::uint64_t start = ticks_now();
    Status status = draft_and_verify();
    if (status.ok()) status = accept();
    if (status.ok()) {
        live_.set_accepted(rounds_);
        status = commit();
    }
    if (!status.ok()) {
        live_.end();
        return status;
    }
    observe();
    const std::uint64_t end = ticks_now();
    live_.end();
    record(start, end);
    return shadow_drafter_.due(rounds_) ? shadow_drafter_.draft(jobs_, rounds_) : Status();
}

Status DecodeStep::make_jobs() {
    jobs_.clear();
    const int d = core_.target.config().hidden, context_length = core_.target.config().context;
    const TreeSpec& max_tree = core_.options.tree;
    const std::size_t max_candidates = numel(total_width(max_tree), max_tree.topk);
    for (Round& round : rounds_) {
        Sequence& sequence = *round.sequence;
        sequence.active->begin_round(sequence.head.get());
        // A draft at depth t is followed by a bonus, so the last free position bounds t + 1.
        const int tokens = static_cast<int>(sequence.tokens.size());
        const int levels = core_.drafter.limit_levels(context_length - tokens - 1, tokens);
        if (levels < 1 || core_.options.tree.nodes <= 1) {
            round.tree.reset(sequence.tokens.back());
            DS_TRY(round.tree.finish());
            continue;
        }
        round.job = static_cast<int>(jobs_.size());
        DraftJob& job = jobs_.add();
        job.reset();
        job.sequence = static_cast<int>(sequence.number);
        job.tokens = sequence.tokens;
        if (!sequence.hidden.empty())
            job.new_hidden = Rows<const float>(sequence.hidden.data(), sequence.new_slots, d);
        if (!sequence.aux.empty())
            job.new_aux = Rows<const float>(sequence.aux.data(), sequence.new_slots, core_.aux_width());
        if (sequence.device_rows > 0) {
            job.device_features = sequence.device_features.as<float>();
            job.device_rows = sequence.device_rows;
        }
        job.state = sequence.drafter.get();
        job.head_state = sequence.head.get();
        job.tree = sequence.lengths.next(core_.options.tree, levels);
        if (core_.records_nodes()) job.candidates.reserve(max_tree.nodes, max_candidates);
    }
    return {};
}

Status DecodeStep::draft_and_verify() {
    DS_TRY(make_jobs());
    DraftContext context{core_.backend, core_.phases, core_.head, core_.options.tree, &live_};
    if (core_.rule->needs().sampled_drafts && core_.options.sampling.temperature > 0)
        context.sampled = &sampling_;
    context.report_coverage = core_.records.on();
    context.keep_candidates = core_.records_nodes();
    core_.sampled = is_sampled(totals_.steps);
    const Status enqueued = backend_step_.enqueue(context, jobs_, rounds_);
    const Status finished = backend_step_.finish(jobs_, rounds_);
    DS_TRY(enqueued);
    DS_TRY(finished);
    for (Round& round : rounds_) {
        if (round.job >= 0) round.candidates = &jobs_[round.job].candidates;
        if (live_.shows(*round.sequence)) live_.set_tree(round.tree);
    }
    return {};
}

/// Returns whether a step's spans are recorded. The first sampled step is the second one after the warm-up.
bool DecodeStep::is_sampled(std::int64_t step) const {
    const int interval = core_.options.span_interval;
    return core_.backend.is_host() || (step - core_.options.warmup_steps) % interval == 1 % interval;
}

/// Takes over the paths that the backend accepted. Of the target's rows, those of the paths must be numbers.
Status DecodeStep::accept() {
    read_choices(core_.target_results, core_.options.sampling, choices_);
    for (Round& round : rounds_) {
        round.first_row = backend_step_.first_row(round.tree_index);
        round.choices = std::span(choices_).subspan(round.first_row, round.tree.size());
        const TreeLogits logits{core_.options.sampling, round.choices, core_.target_results, round.first_row};
        core_.rule->accept(round.tree, logits, backend_step_.path(round.tree_index), round.acceptance);
        for (const int node : round.acceptance.path)
            if (!round.choices[node].is_number())
                return not_numbers(round.sequence->prompt.id, round.root() + round.tree.depths[node]);
        accept_round(round);
    }
    return {};
}

void DecodeStep::accept_round(Round& round) {
    for (std::size_t i = 1; i < round.acceptance.path.size(); ++i)
        round.emitted.push_back(round.tree.tokens[round.acceptance.path[i]]);
    round.emitted.push_back(round.acceptance.bonus);
    const auto [count, finish] = truncate_at_stop(*round.sequence, round.emitted, core_.limits());
    round.emitted.resize(count);
    round.finish = finish;
}

Status DecodeStep::commit() {
    std::size_t rows = 0;
    for (const Round& round : rounds_) rows += round.acceptance.path.size();
    PhaseScope scope(core_.phases, Phase::commit, 0, static_cast<int>(rows));
    for (Round& round : rounds_) {
        Sequence& sequence = *round.sequence;
        DS_TRY(backend_step_.commit(round));
        if (round.job < 0 || !jobs_[round.job].own_length)
            sequence.lengths.update(round.tree.size() - 1, round.accepted());
        if (core_.records.on() || sequence.head != nullptr) make_round_rows(round);
        round.new_text = sequence.append(round.emitted);
        sequence.outcome.finish = round.finish;
    }
    backend_step_.end_commits();
    return {};
}

void DecodeStep::observe() {
    if (core_.head == nullptr) return;
    for (Round& round : rounds_)
        core_.head->on_verified(round.sequence->head.get(), round.tree,
                                {round.acceptance.path, round.acceptance.bonus, round.best, round.best_k});
}

/// Reads the target's best tokens that the head takes in.
void DecodeStep::read_best(Round& round) {
    const TargetTokens& tokens = core_.head->target_tokens();
    round.best_k = std::min(tokens.at_verified, core_.vocab);
    if (round.best_k == 0) return;
    std::span<const int> nodes = round.acceptance.path;
    int max_rows = core_.options.tree.levels() + 1;
    if (tokens.nodes == VerifiedNodes::all) {
        // The memory of the largest tree, as trees of sampled drafts differ in size.
        max_rows = core_.options.tree.nodes;
        nodes_.reserve(max_rows);
        nodes_.resize(round.tree.size());
        std::iota(nodes_.begin(), nodes_.end(), 0);
        nodes = nodes_;
    }
    round.best.reserve(numel(max_rows, round.best_k));
    find_top_tokens(core_, round, nodes, round.best_k, round.best);
}

/// Runs inside phase commit, so that the cost of recording is part of the measured step.
void DecodeStep::make_round_rows(Round& round) {
    if (core_.head != nullptr) read_best(round);
    if (!core_.records.on()) return;
    const bool nodes = core_.records_nodes();
    RoundRecord& record = round.record;
    record.tokens = token_rows(core_, round);
    for (const TokenRow& token : record.tokens) round.uncovered += token.covered == true ? 0 : 1;
    if (nodes) {
        record.nodes = node_rows(core_, round);
        record.tops = top_rows(core_, round, std::min(num_top_tokens, core_.vocab));
    }
    if (core_.drafting_head() == nullptr) return;
    HeadEvalRow& row = record.head_evals.emplace_back();
    if (round.job >= 0)
        row = head_row(*core_.head, jobs_, round.job, core_.records.head_text(), HeadMode::drive);
    else
        row.head = core_.records.head_text();
    row.accepted = round.accepted();
    row.committed = static_cast<int>(round.emitted.size());
    row.covered = row.committed - round.uncovered;
    // A head that makes its sets in every round has none for a round that it does not draft.
    const bool called_head = round.job >= 0 && !jobs_[round.job].rows_per_call.empty();
    if (nodes && (called_head || core_.head->shape(0, 1).set == 0))
        row.covered_mass = covered_mass(core_, round);
}

void DecodeStep::record(std::uint64_t start, std::uint64_t end) {
    core_.spans.collect();
    if (!core_.sampled) core_.spans.clear();  // those of the host alone
    const TimeNs head_ns = core_.spans.head_ns(0);
    StepRow row;
    row.start_ns = core_.spans.to_run_time(start);
    row.end_ns = core_.spans.to_run_time(end);
    row.paused_ns = core_.take_paused_ns();
    row.sampled = core_.sampled;
    row.excluded = totals_.steps < core_.options.warmup_steps ? Excluded::warmup
                   : row.paused_ns > 0                        ? Excluded::paused
                                                              : Excluded::no;
    for (Round& round : rounds_) {
        PromptOutcome& outcome = round.sequence->outcome;
        RoundRow& out = round.record.round;
        out.prompt_id = round.sequence->row.id;
        out.ordinal = static_cast<int>(outcome.rounds);
        out.context_length = static_cast<int>(round.sequence->tokens.size() - round.emitted.size());
        out.tree_nodes = round.tree.size();
        out.tree_depth = round.tree.max_depth();
        out.draft_tokens = out.tree_nodes - 1;
        out.accepted = round.accepted();
        out.committed = static_cast<int>(round.emitted.size());
        out.clipped = round.emitted.size() < round.acceptance.path.size();
        if (round.job >= 0) out.drafter = jobs_[round.job].drafter;
        ++outcome.rounds;
        outcome.draft_tokens += out.draft_tokens;
        outcome.accepted += out.accepted;
        outcome.committed += out.committed;
        outcome.decode_ns += row.busy_ns();
        if (round.job >= 0 && !round.record.head_evals.empty())
            round.record.head_evals.front().head_ns = split_evenly(head_ns, round.job, jobs_.size());
    }
    count(row);
    push_records(row);
    if (!core_.records.progress_due()) return;
    for (const Round& round : rounds_)
        core_.records.progress(round.sequence->row, round.sequence->outcome.text);
}

/// Moves the rounds' rows and their memory to the recorder: with the step's rows, all that recording
/// allocates.
void DecodeStep::push_records(const StepRow& row) {
    std::vector<RoundRecord> records;
    if (core_.records.on()) records.reserve(rounds_.size());
    for (Round& round : rounds_)
        if (core_.records.on()) records.push_back(std::move(round.record));
    core_.records.step(row, std::move(records));
}

void DecodeStep::count(const StepRow& row) {
    const TimeNs ns = row.busy_ns();
    std::int64_t committed = 0;
    for (const Round& round : rounds_) committed += static_cast<std::int64_t>(round.emitted.size());
    ++totals_.steps;
    totals_.rounds += static_cast<std::int64_t>(rounds_.size());
    totals_.committed += committed;
    totals_.decode_ns += ns;
    if (!row.time_counts()) return;
    totals_.counted_committed += committed;
    totals_.counted_ns += ns;
}

}  // namespace draftscope
