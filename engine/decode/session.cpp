#include "engine/decode/session.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "engine/decode/decode_step.h"
#include "engine/sequence/round_rows.h"
#include "engine/shadow/shadow_evaluator.h"

namespace draftscope {
namespace {

/// Passes the prompt to the head. Returns the bytes of logits that only the head needs.
std::uint64_t begin_head(DecodeContext& core, Sequence& sequence) {
    const int k = std::min(core.head->target_tokens().at_prompt, core.vocab);
    const PromptTopTokens best = find_prompt_top_tokens(core, k);
    sequence.head = core.head->begin_prompt(
        sequence.tokens, Rows<const TokenId>(best.ids.data(), k == 0 ? 0 : core.forward.rows, k));
    if (sequence.head != nullptr)
        sequence.active = std::make_shared<DraftVocab>(core.drafting_head(), core.vocab);
    sequence.active->begin_round(sequence.head.get());
    return best.bytes;
}

TokenRow first_token_row(const DecodeContext& core, const Sequence& sequence, TokenId token) {
    TokenRow row;
    row.prompt_id = sequence.row.id;
    row.token_id = token;
    row.source = TokenSource::prefill;
    row.rank = core.records.rank(token);
    row.covered = sequence.active->covers(token, 0);
    return row;
}

/// Returns an error if the prompt cannot be decoded. Call before any record of it.
Status check_prompt(const DecodeContext& core, const PromptInput& prompt) {
    const ModelConfig& model = core.target.config();
    const int tokens = static_cast<int>(prompt.tokens.size());
    if (tokens == 0) return bad_input("prompt {}: has no tokens", prompt.id);
    if (tokens >= model.context)
        return bad_input(
            "prompt {}: {} tokens leave no room in the model's context of {}; shorten the prompt", prompt.id,
            tokens, model.context);
    for (const TokenId token : prompt.tokens)
        if (token < 0 || token >= model.vocab)
            return bad_input("prompt {}: token {} is outside the vocabulary of {}", prompt.id, token,
                             model.vocab);
    const DecodeOptions& options = core.options;
    if (options.max_new < 1) return bad_input("max-new is {}; use 1 or more", options.max_new);
    if (options.batch < 1 || options.batch > max_batch)
        return bad_input("batch is {}; use 1 to {}", options.batch, max_batch);
    if (options.batch > 1 && core.drafter.properties().order_matters)
        return bad_input("batch is {}, but the drafter searches the texts before; use 1", options.batch);
    if (core.drafter.uses_head() && core.head == nullptr)
        return failed("the drafter needs a head, but none was given");
    return {};
}

/// Creates a sequence with memory for its complete text and starts its records.
std::unique_ptr<Sequence> open_sequence(DecodeContext& core, PromptInput prompt, std::uint64_t number) {
    const int context = core.target.config().context, length = static_cast<int>(prompt.tokens.size());
    const int max_new = core.options.max_new;
    const int slots = std::min(context, length > context - max_new ? context : length + max_new);
    auto sequence = std::make_unique<Sequence>(core.target.make_cache(slots + core.options.tree.nodes),
                                               core.target.tokenizer());
    sequence->number = number;
    // Capacity for the complete text: a token is seldom more than a few bytes.
    constexpr int bytes_per_token = 8;
    sequence->tokens = std::move(prompt.tokens);
    sequence->tokens.reserve(slots);
    if (core.target.tokenizer() != nullptr)
        sequence->outcome.text.reserve(bytes_per_token * (slots - length));
    sequence->prompt = std::move(prompt);
    sequence->outcome.prompt_tokens = length;
    // Trees use slots after the text's last one. Growing for them would move all keys and values in every
    // round.
    sequence->drafter = core.drafter.make_state(slots + core.options.tree.drafting_nodes());
    sequence->lengths = DraftLengths(core.options.tree);
    sequence->active = core.active;
    PromptRow& row = sequence->row;
    row.ordinal = static_cast<int>(number);
    row.external_id = sequence->prompt.id;
    row.turn = sequence->prompt.turn;
    row.suite = sequence->prompt.suite;
    row.category = sequence->prompt.category;
    row.text = sequence->prompt.text;
    row.prompt_tokens = length;
    core.records.start_prompt(row);
    return sequence;
}

/// Runs the prompt through the target and keeps the first token. Returns the printable text so far. If
/// cancelled, the sequence's finish is Finish::cancelled.
Result<std::string> prefill_sequence(DecodeContext& core, Sequence& sequence) {
    core.phases.set_round(-1);
    core.gate.at_round_start(HoldPoint::Kind::before_prefill);
    core.take_paused_ns();
    core.spans.clear();
    const std::uint64_t start = ticks_now();
    std::uint64_t end = start;
    std::vector<TargetSample> first;
    Status status;
    {
        PhaseScope scope(core.phases, Phase::prefill, 0, sequence.outcome.prompt_tokens);
        status = core.target.prefill(sequence.cache, sequence.tokens, core.drafter.aux_layers(), core.forward,
                                     [&core] { return core.gate.cancelled(); });
        scope.add_bytes(core.forward.bytes);
        if (status.ok()) {
            const TokenPosition position{sequence.number, sequence.outcome.prompt_tokens};
            const int columns = core.target.config().vocab;
            sample_tokens(core.backend, Rows<const float>(core.forward.logits.data(), 1, columns), core.vocab,
                          core.options.sampling, {&position, 1}, first);
            if (!first[0].is_number() || has_nan(std::span(core.forward.logits).first(core.vocab)))
                status = not_numbers(sequence.prompt.id, sequence.outcome.prompt_tokens - 1);
            if (status.ok() && core.head != nullptr) scope.add_bytes(begin_head(core, sequence));
        }
        end = ticks_now();
    }
    sequence.outcome.prefill_ns =
        core.spans.to_run_time(end) - core.spans.to_run_time(start) - core.take_paused_ns();
    sequence.row.prefill_ns = sequence.outcome.prefill_ns;
    core.records.prefill_done();
    if (!status.ok()) {
        if (status.error().kind != ErrorKind::cancelled) return status.error();
        sequence.outcome.finish = Finish::cancelled;
        return std::string();
    }
    sequence.store_features(core.backend, core.forward,
                            core.drafter.needs_hidden() ? core.target.config().hidden : 0, core.aux_width());

    const TokenId token = first[0].token;
    sequence.outcome.finish = truncate_at_stop(sequence, {&token, 1}, core.limits()).second;
    const TokenRow row = first_token_row(core, sequence, token);
    const std::size_t new_text = sequence.append({&token, 1});
    core.records.progress(sequence.row, sequence.outcome.text, {row});
    return sequence.outcome.text.substr(sequence.outcome.text.size() - new_text);
}

}  // namespace

struct DecodeSession::Impl {
    explicit Impl(DecodeSetup setup) : core(std::move(setup)), decode_step(core), shadows(core) {
        core.phases.set_observer(&core.gate);
        core.drafter.begin_run();
        const std::lock_guard lock(core.backend.submit_mutex());
        core.backend.clear_out_of_memory();  // an earlier session's error
    }
    ~Impl() { core.phases.set_observer(nullptr); }

    /// Begins prompts until the batch is full or no prompt can begin.
    Status fill(PromptFeed& feed);
    Status step(PromptFeed& feed);
    void end(PromptFeed& feed, Sequence& sequence);
    void close(Sequence& sequence, PromptFeed* feed);

    DecodeContext core;
    DecodeStep decode_step;
    ShadowEvaluator shadows;
    std::vector<std::unique_ptr<Sequence>> active;  ///< in the order in which they began
    std::vector<RoundEnd> ends;                     ///< of the current step
    int begun = 0;
};

Status DecodeSession::Impl::fill(PromptFeed& feed) {
    while (static_cast<int>(active.size()) < core.options.batch && !core.gate.cancelled()) {
        std::optional<PromptInput> prompt = feed.next();
        if (!prompt) break;
        DS_TRY(check_prompt(core, *prompt));
        const int ordinal = prompt->ordinal.value_or(begun);
        ++begun;
        active.push_back(open_sequence(core, std::move(*prompt), static_cast<std::uint64_t>(ordinal)));
        Sequence& sequence = *active.back();
        DS_ASSIGN(const std::string piece, prefill_sequence(core, sequence));
        if (!piece.empty()) feed.text(sequence.prompt, piece);
        DS_TRY(shadows.begin(sequence));
        if (!sequence.done()) continue;
        end(feed, sequence);
        active.pop_back();
    }
    return {};
}

Status DecodeSession::Impl::step(PromptFeed& feed) {
    core.gate.at_round_start();
    if (core.gate.cancelled()) {
        for (const auto& sequence : active) {
            sequence->outcome.finish = Finish::cancelled;
            end(feed, *sequence);
        }
        active.clear();
        return {};
    }
    DS_TRY(decode_step.step(active));
    DS_TRY(shadows.after_step(decode_step.rounds()));
    ends.clear();
    for (const Round& round : decode_step.rounds()) {
        ends.push_back({round.accepted(), round.tree.max_depth(), round.uncovered,
                        round.finish == Finish::eos, round.sequence->outcome.text, round.new_text,
                        round.sequence->row.id, round.sequence->outcome.rounds, round.emitted});
        if (round.new_text > 0) feed.text(round.sequence->prompt, round.piece());
    }
    core.gate.at_round_end(ends, [&](const BreakpointHit& hit) {
        const auto at = std::ranges::find(ends, hit.prompt_id, &RoundEnd::prompt_id);
        const std::ptrdiff_t index = at == ends.end() ? 0 : at - ends.begin();  // a step: its first round
        core.records.note(core.records.latest_round_id(index, ends.size()),
                          std::string(breakpoint_note) + hit.what);
    });
    std::erase_if(active, [&](const std::unique_ptr<Sequence>& sequence) {
        if (!sequence->done()) return false;
        end(feed, *sequence);
        return true;
    });
    return {};
}

void DecodeSession::Impl::end(PromptFeed& feed, Sequence& sequence) {
    close(sequence, &feed);
    feed.done(sequence.prompt, std::move(sequence.outcome));
}

/// Closes a prompt's records in their current state. If `feed` is null, the remaining text is not reported.
void DecodeSession::Impl::close(Sequence& sequence, PromptFeed* feed) {
    if (sequence.text) {
        const std::string rest = sequence.text->finish();
        sequence.outcome.text += rest;
        if (feed != nullptr && !rest.empty()) feed->text(sequence.prompt, rest);
    }
    sequence.outcome.tokens.assign(sequence.tokens.begin() + sequence.outcome.prompt_tokens,
                                   sequence.tokens.end());
    shadows.evaluate_pending(sequence, true);
    sequence.row.output = sequence.outcome.text;
    sequence.row.generated_tokens = sequence.generated();
    sequence.row.finish = sequence.outcome.finish;
    core.records.end_prompt(sequence.row);
}

DecodeSession::DecodeSession(DecodeSetup setup) : impl_(std::make_unique<Impl>(std::move(setup))) {}

DecodeSession::~DecodeSession() = default;

Status DecodeSession::run(PromptFeed& feed) {
    Impl& impl = *impl_;
    Status status = impl.fill(feed);
    while (status.ok() && !impl.active.empty()) {
        status = impl.step(feed);
        if (status.ok()) status = impl.fill(feed);
    }
    for (const auto& sequence : impl.active) impl.close(*sequence, nullptr);
    impl.active.clear();
    return status;
}

DecodeTotals DecodeSession::totals() const {
    return impl_->decode_step.totals();
}

}  // namespace draftscope
