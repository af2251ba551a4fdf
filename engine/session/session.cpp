#include "engine/session/session.h"

#include <algorithm>
#include <utility>

#include "engine/session/active_sets.h"
#include "engine/session/round_rows.h"
#include "engine/session/run_records.h"
#include "engine/session/sequence.h"
#include "engine/session/span_log.h"

namespace draftscope {
namespace {

/// A round on its way through the phases of a step.
struct Round {
    DraftJob job;
    DraftTree tree;
    std::vector<TargetChoice> choices;
    Acceptance acceptance;
    std::vector<TokenId> emitted;  ///< after clipping
    std::vector<TokenId> best;     ///< [path, best_k] top tokens of the path, when something wants them
    int best_k = 0;
    Finish finish = Finish::none;
    std::string piece;
    RoundRecord record;
    bool shadowed = false;
    std::size_t shadow_first = 0, shadow_last = 0;  ///< events of the calibration draft
    int accepted() const { return static_cast<int>(std::min(acceptance.path.size() - 1, emitted.size())); }
};

}  // namespace

struct DecodeSession::Impl final : LevelWatcher {
    Impl(Target& target_in, Drafter& drafter_in, Head* head_in, Head* full_head_in, kernels::Exec& exec_in,
         DecodeOptions options_in, Recording recording, PhaseRecorder& phases_in, Gate& gate_in)
        : target(target_in),
          drafter(drafter_in),
          head(head_in),
          full_head(full_head_in),
          exec(exec_in),
          options(options_in),
          phases(phases_in),
          gate(gate_in),
          spans(phases_in, recording.run_start),
          records(std::move(recording), spans),
          vocab(real_vocab(target_in)),
          active(drafter_in.uses_head() ? head_in : nullptr, vocab) {
        phases.set_observer(&gate);
        gate.set_hold_hook([this](Phase phase, int level) { show_live(phase, level); });
    }
    ~Impl() override {
        gate.set_hold_hook({});
        phases.set_observer(nullptr);
    }

    static int real_vocab(const Target& target) {
        const int rows = target.config().vocab;
        return target.tokenizer() == nullptr ? rows : std::min(rows, target.tokenizer()->size());
    }

    Status check(const PromptInput& prompt) const;
    Sequence open(const PromptInput& prompt);
    Status prefill(Sequence& sequence, const std::function<void(const std::string&)>& on_text);
    Status step(Sequence& sequence, const std::function<void(const std::string&)>& on_text);
    void close(Sequence& sequence, const std::function<void(const std::string&)>& on_text);

    /// Shows the head its prompt; the bytes are of logits that only the head wants.
    std::uint64_t begin_head(Sequence& sequence) {
        const int k = std::min(head->prefill_topk(), vocab);
        const PromptBest best = best_of_prompt(exec, target.lm_head(), forward, vocab, k);
        head->begin_prompt(sequence.head.get(), sequence.tokens, best.rows());
        active.begin_round(sequence.head.get());
        return best.bytes;
    }

    // The parts of a step.
    Status draft(Sequence& sequence, Round& round);
    Status draft_shadow(Sequence& sequence, Round& round);
    Status verify(Sequence& sequence, Round& round);
    void accept(Sequence& sequence, Round& round);
    void commit(Sequence& sequence, Round& round);
    void note_round(Sequence& sequence, Round& round);
    void finish_record(Sequence& sequence, Round& round, const StepRow& row);

    TextLimits limits() const {
        return {options.ignore_eos ? nullptr : target.tokenizer(), options.max_new, target.config().context};
    }
    void take_features(Sequence& sequence, std::span<const int> rows) {
        const int d = target.config().hidden;
        sequence.take_features(exec, forward, rows, drafter.needs_hidden() ? d : 0,
                               static_cast<int>(drafter.aux_layers().size()) * d);
    }
    // Every other step, so that a short run has counted steps as well.
    bool calibrates() const {
        return records.on() && full_head != nullptr && head != nullptr && full_head != head &&
               drafter.uses_head() && records.head_text() != "full" &&
               calibrated < options.calibration_rounds && steps >= options.warmup_steps &&
               (steps - options.warmup_steps) % 2 == 0;
    }
    Rows<const float> logits() const {
        const int columns = target.config().vocab;
        return {forward.logits.data(), forward.rows, vocab, columns};
    }

    void level_done(int sequence, int level, FunctionRef<DraftTree()> partial) override;
    void show_live(Phase phase, int level);

    Target& target;
    Drafter& drafter;
    Head* head;
    Head* full_head;
    kernels::Exec& exec;
    DecodeOptions options;
    PhaseRecorder& phases;
    Gate& gate;
    SpanLog spans;
    RunRecords records;
    int vocab;  ///< real ids
    ActiveSets active;
    ForwardOutput forward;
    std::uint64_t prompts = 0;
    int steps = 0;  ///< of the run
    int calibrated = 0;
    const Sequence* in_flight = nullptr;  ///< while a step runs
    DraftTree live_tree;                  ///< of the step, as far as it was shown
};

Status DecodeSession::Impl::check(const PromptInput& prompt) const {
    const int tokens = static_cast<int>(prompt.tokens.size()), context = target.config().context;
    if (tokens == 0) return bad_input("prompt {}: it has no tokens", prompt.id);
    if (tokens >= context)
        return bad_input(
            "prompt {}: {} tokens leave no room in the model's context of {}; shorten the prompt", prompt.id,
            tokens, context);
    for (const TokenId token : prompt.tokens)
        if (token < 0 || token >= target.config().vocab)
            return bad_input("prompt {}: token {} is outside the vocabulary of {}", prompt.id, token,
                             target.config().vocab);
    if (options.max_new < 1) return bad_input("max-new is {}; use 1 or more", options.max_new);
    if (drafter.uses_head() && head == nullptr) return failed("the drafter needs a head and has none");
    return {};
}

Sequence DecodeSession::Impl::open(const PromptInput& prompt) {
    const int context = target.config().context, length = static_cast<int>(prompt.tokens.size());
    const int slots =
        std::min(context, length > context - options.max_new ? context : length + options.max_new);
    Sequence sequence(target.make_cache(slots + options.tree.nodes), target.tokenizer());
    sequence.number = prompts++;
    sequence.tokens = prompt.tokens;
    sequence.outcome.prompt_tokens = length;
    sequence.drafter = drafter.make_state(slots);
    if (head != nullptr) sequence.head = head->make_state();
    sequence.row.external_id = prompt.id;
    sequence.row.turn = prompt.turn;
    sequence.row.suite = prompt.suite;
    sequence.row.category = prompt.category;
    sequence.row.text = prompt.text;
    sequence.row.prompt_tokens = length;
    records.start_prompt(sequence.row);
    return sequence;
}

Status DecodeSession::Impl::prefill(Sequence& sequence,
                                    const std::function<void(const std::string&)>& on_text) {
    phases.set_round(-1);
    gate.at_round_start();
    gate.take_paused_ns();
    spans.clear();
    const std::uint64_t start = ticks_now();
    std::uint64_t end = start;
    std::vector<TargetChoice> first;
    Status status;
    {
        PhaseScope scope(phases, Phase::prefill, 0, sequence.outcome.prompt_tokens);
        status = target.prefill(exec, sequence.cache, sequence.tokens, drafter.aux_layers(), forward,
                                [this] { return gate.cancelled(); });
        scope.add_bytes(forward.bytes);
        if (status.ok()) {
            const std::int64_t position = sequence.outcome.prompt_tokens;
            choose_tokens(exec, Rows<const float>(forward.logits.data(), 1, target.config().vocab), vocab,
                          options.sampling, sequence.number, {&position, 1}, first);
            if (head != nullptr) scope.add_bytes(begin_head(sequence));
        }
        end = ticks_now();
    }
    sequence.outcome.prefill_ns = spans.at(end) - spans.at(start);
    sequence.row.prefill_ns = sequence.outcome.prefill_ns;
    records.prefill_done();
    if (!status.ok()) {
        if (status.error().kind != ErrorKind::cancelled) return status;
        sequence.outcome.finish = Finish::cancelled;
        return {};
    }
    std::vector<int> rows(static_cast<std::size_t>(sequence.outcome.prompt_tokens));
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<int>(i);
    take_features(sequence, rows);

    const TokenId token = first[0].token;
    sequence.outcome.finish = keep_tokens(sequence, {&token, 1}, limits()).second;
    TokenRow row;
    row.prompt_id = sequence.row.id;
    row.token_id = token;
    row.source = TokenSource::prefill;
    row.rank = frequency_rank(records.ranks(), token);
    row.covered = active.covers(token, 0);
    const std::string piece = sequence.append({&token, 1});
    if (on_text && !piece.empty()) on_text(piece);
    records.progress(sequence.row, {row});
    return {};
}

Status DecodeSession::Impl::step(Sequence& sequence, const std::function<void(const std::string&)>& on_text) {
    gate.at_round_start();
    if (gate.cancelled()) {
        sequence.outcome.finish = Finish::cancelled;
        return {};
    }
    gate.take_paused_ns();
    spans.clear();
    phases.set_round(steps);
    live_tree = DraftTree::with_root(sequence.tokens.back());
    in_flight = &sequence;
    Round round;
    const std::uint64_t start = ticks_now();
    Status status = draft(sequence, round);
    if (status.ok()) status = verify(sequence, round);
    if (!status.ok()) {
        in_flight = nullptr;
        return status;
    }
    accept(sequence, round);
    commit(sequence, round);
    if (head != nullptr)
        head->observe(sequence.head.get(), round.tree,
                      {round.acceptance.path, round.acceptance.bonus, round.best, round.best_k});
    const std::uint64_t end = ticks_now();
    in_flight = nullptr;
    spans.collect();

    StepRow row;
    row.start_ns = spans.at(start);
    row.end_ns = spans.at(end);
    row.paused_ns = gate.take_paused_ns();
    row.excluded = steps < options.warmup_steps ? Excluded::warmup
                   : row.paused_ns > 0          ? Excluded::paused
                   : round.shadowed             ? Excluded::shadow
                                                : Excluded::no;
    ++steps;
    finish_record(sequence, round, row);
    if (on_text && !round.piece.empty()) on_text(round.piece);
    records.progress(sequence.row);
    gate.at_round_end(round.accepted(), round.tree.max_depth());
    return {};
}

Status DecodeSession::Impl::draft(Sequence& sequence, Round& round) {
    DraftJob& job = round.job;
    job.sequence = static_cast<int>(sequence.number);
    job.tokens = sequence.tokens;
    const int d = target.config().hidden;
    if (!sequence.hidden.empty())
        job.new_hidden = Rows<const float>(sequence.hidden.data(), sequence.new_slots, d);
    if (!sequence.aux.empty())
        job.new_aux = Rows<const float>(sequence.aux.data(), sequence.new_slots,
                                        static_cast<int>(drafter.aux_layers().size()) * d);
    job.state = sequence.drafter.get();
    job.head_state = sequence.head.get();
    // A draft at depth t is followed by a bonus: the last position that may be filled bounds t + 1.
    job.tree =
        clip_tree(options.tree, target.config().context - static_cast<int>(sequence.tokens.size()) - 1);
    active.begin_round(sequence.head.get());
    if (job.tree.nodes <= 1) {
        round.tree = DraftTree::with_root(sequence.tokens.back());
        return round.tree.finish();
    }
    if (head != nullptr) {
        ProposeContext at_start{exec, phases, 0};
        HeadState* const state = sequence.head.get();
        head->begin_round(at_start, {&state, 1});
    }
    DraftContext context{exec, phases, head, options.tree, this};
    DS_TRY(drafter.catch_up(context, {&job, 1}));
    DS_TRY(drafter.expand(context, {&job, 1}));
    round.tree = std::move(job.out);
    if (round.tree.mask.nodes() != round.tree.size()) {
        PhaseScope scope(phases, Phase::rerank, 0, round.tree.size());
        DS_TRY(round.tree.finish());
    }
    live_tree = round.tree;
    if (calibrates()) DS_TRY(draft_shadow(sequence, round));
    return {};
}

Status DecodeSession::Impl::draft_shadow(Sequence& sequence, Round& round) {
    spans.collect();
    round.shadow_first = spans.size();
    DraftJob job = round.job;
    job.head_state = nullptr;
    job.head_rows.clear();
    DraftContext context{exec, phases, full_head, options.tree, nullptr};
    phases.set_observer(nullptr);  // stepping is about the driving head
    HeadState* const no_state = nullptr;
    ProposeContext at_start{exec, phases, 0};
    full_head->begin_round(at_start, {&no_state, 1});
    const Status status = drafter.expand(context, {&job, 1});
    phases.set_observer(&gate);
    DS_TRY(status);
    spans.collect();
    round.shadow_last = spans.size();
    round.shadowed = true;
    ++calibrated;
    HeadEvalRow row = head_row(*full_head, job, "full", HeadMode::calibration);
    row.run_id = records.run_id();
    row.round_id = records.next_round_id();
    row.head_ns = spans.head_ns(round.shadow_first, round.shadow_last);
    row.covered_mass = 1.0;
    sequence.calibration.add(std::move(job.out), std::move(row), sequence.tokens.size());
    return {};
}

Status DecodeSession::Impl::verify(Sequence& sequence, Round& round) {
    const DraftTree& tree = round.tree;
    PhaseScope scope(phases, Phase::verify, 0, tree.size());
    const SequenceRows rows{&sequence.cache, tree.tokens, tree.depths, &tree.mask};
    ForwardRequest request;
    request.sequences = {&rows, 1};
    request.aux_layers = drafter.aux_layers();
    request.all_logits = true;
    DS_TRY(target.forward(exec, request, forward));
    scope.add_bytes(forward.bytes);
    return {};
}

void DecodeSession::Impl::accept(Sequence& sequence, Round& round) {
    PhaseScope scope(phases, Phase::accept, 0, round.tree.size());
    std::vector<std::int64_t> positions;
    for (const int depth : round.tree.depths)
        positions.push_back(static_cast<std::int64_t>(sequence.tokens.size()) + depth);
    choose_tokens(exec, Rows<const float>(forward.logits.data(), forward.rows, target.config().vocab), vocab,
                  options.sampling, sequence.number, positions, round.choices);
    round.acceptance = accept_match(round.tree, round.choices);
    for (std::size_t i = 1; i < round.acceptance.path.size(); ++i)
        round.emitted.push_back(round.tree.tokens[static_cast<std::size_t>(round.acceptance.path[i])]);
    round.emitted.push_back(round.acceptance.bonus);
    const auto [count, finish] = keep_tokens(sequence, round.emitted, limits());
    round.emitted.resize(count);
    round.finish = finish;
}

void DecodeSession::Impl::commit(Sequence& sequence, Round& round) {
    PhaseScope scope(phases, Phase::commit, 0, static_cast<int>(round.acceptance.path.size()));
    sequence.cache.commit_path(round.acceptance.path);
    take_features(sequence, round.acceptance.path);
    if (records.on() || sequence.head != nullptr) note_round(sequence, round);
    round.piece = sequence.append(round.emitted);
    sequence.outcome.finish = round.finish;
}

/// The round's rows are made inside phase commit, so that what watching costs is seen in the measured step.
void DecodeSession::Impl::note_round(Sequence& sequence, Round& round) {
    const RoundFacts facts{round.tree,    round.choices, round.acceptance.path,
                           round.emitted, logits(),      options.sampling};
    const bool nodes = records.on() && options.record_nodes;
    const int shown = nodes ? std::min(top_tokens, vocab) : 0;
    round.best_k = std::max(shown, head == nullptr ? 0 : std::min(head->verify_topk(), vocab));
    if (round.best_k > 0) round.best = best_of_path(exec, facts, round.best_k);
    if (!records.on()) return;
    RoundRecord& record = round.record;
    record.tokens = token_rows(facts, active, sequence.row.id, sequence.generated(), records.ranks());
    if (nodes) {
        record.nodes = node_rows(exec, facts, active);
        record.tops = top_rows(facts, round.best, shown);
    }
    if (head == nullptr || !drafter.uses_head()) return;
    HeadEvalRow row = head_row(*head, round.job, records.head_text(), HeadMode::drive);
    row.accepted = round.accepted();
    row.committed = static_cast<int>(round.emitted.size());
    for (const TokenRow& token : record.tokens) row.covered += token.covered ? 1 : 0;
    if (nodes) row.covered_mass = covered_mass(facts, active);
    record.head_evals.push_back(std::move(row));
}

void DecodeSession::Impl::finish_record(Sequence& sequence, Round& round, const StepRow& row) {
    PromptOutcome& outcome = sequence.outcome;
    RoundRow& out = round.record.round;
    out.prompt_id = sequence.row.id;
    out.ordinal = static_cast<int>(outcome.rounds);
    out.context_length = static_cast<int>(sequence.tokens.size() - round.emitted.size());
    out.tree_nodes = round.tree.size();
    out.tree_depth = round.tree.max_depth();
    out.drafted = out.tree_nodes - 1;
    out.accepted = round.accepted();
    out.committed = static_cast<int>(round.emitted.size());
    out.clipped = round.emitted.size() < round.acceptance.path.size();
    ++outcome.rounds;
    outcome.drafted += out.drafted;
    outcome.accepted += out.accepted;
    outcome.committed += out.committed;
    outcome.decode_ns += row.end_ns - row.start_ns - row.paused_ns;
    if (!round.record.head_evals.empty())
        round.record.head_evals.front().head_ns =
            spans.head_ns(0, spans.size()) - spans.head_ns(round.shadow_first, round.shadow_last);
    records.step(row, std::move(round.record));
    if (!sequence.calibration.empty())
        records.evaluated(sequence.calibration.judge(sequence.tokens, sequence.done()));
}

void DecodeSession::Impl::close(Sequence& sequence, const std::function<void(const std::string&)>& on_text) {
    if (sequence.text) {
        const std::string rest = sequence.text->finish();
        sequence.outcome.text += rest;
        if (on_text && !rest.empty()) on_text(rest);
    }
    sequence.outcome.tokens.assign(sequence.tokens.begin() + sequence.outcome.prompt_tokens,
                                   sequence.tokens.end());
    records.evaluated(sequence.calibration.judge(sequence.tokens, true));
    sequence.row.output = sequence.outcome.text;
    sequence.row.generated_tokens = sequence.generated();
    sequence.row.finish = sequence.outcome.finish;
    records.end_prompt(sequence.row);
}

void DecodeSession::Impl::level_done(int, int level, FunctionRef<DraftTree()> partial) {
    if (!gate.paused()) return;
    live_tree = partial();
    gate.at_level(level);
}

void DecodeSession::Impl::show_live(Phase phase, int level) {
    if (in_flight == nullptr || !records.on()) return;
    RoundRecord partial;
    partial.round.prompt_id = in_flight->row.id;
    partial.round.ordinal = static_cast<int>(in_flight->outcome.rounds);
    partial.round.context_length = static_cast<int>(in_flight->tokens.size());
    partial.round.tree_nodes = live_tree.size();
    partial.round.tree_depth = live_tree.max_depth();
    partial.round.drafted = live_tree.size() - 1;
    partial.nodes = draft_rows(live_tree);
    records.live(std::move(partial), phase, level);
}

DecodeSession::DecodeSession(Target& target, Drafter& drafter, Head* head, Head* full_head,
                             kernels::Exec& exec, DecodeOptions options, Recording recording,
                             PhaseRecorder& phases, Gate& gate)
    : impl_(std::make_unique<Impl>(target, drafter, head, full_head, exec, options, std::move(recording),
                                   phases, gate)) {}

DecodeSession::~DecodeSession() = default;

Result<PromptOutcome> DecodeSession::decode(const PromptInput& prompt,
                                            const std::function<void(const std::string& piece)>& on_text) {
    DS_TRY(impl_->check(prompt));
    Sequence sequence = impl_->open(prompt);
    DS_TRY(impl_->prefill(sequence, on_text));
    while (!sequence.done()) DS_TRY(impl_->step(sequence, on_text));
    impl_->close(sequence, on_text);
    return std::move(sequence.outcome);
}

}  // namespace draftscope
