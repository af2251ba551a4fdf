#include "engine/decode/prefill.h"

#include <numeric>

#include "engine/record/round_rows.h"

namespace draftscope {
namespace {

/// Passes the prompt to the head. Returns the bytes of logits that only the head needs.
std::uint64_t begin_head(DecodeContext& core, Sequence& sequence) {
    const int k = std::min(core.head->target_tokens().at_prompt, core.vocab);
    const PromptTopTokens best =
        find_prompt_top_tokens(core.backend, core.target.lm_head(), core.forward, core.vocab, k);
    sequence.head = core.head->begin_prompt(sequence.tokens, best.rows());
    if (sequence.head != nullptr) {
        sequence.private_active = std::make_unique<DraftVocab>(core.drafting_head(), core.vocab);
        sequence.active = sequence.private_active.get();
    }
    sequence.active->begin_round(sequence.head.get());
    return best.bytes;
}

TokenRow first_token_row(const DecodeContext& core, const Sequence& sequence, TokenId token) {
    TokenRow row;
    row.prompt_id = sequence.row.id;
    row.token_id = token;
    row.source = TokenSource::prefill;
    row.rank = frequency_rank(core.records.ranks(), token);
    row.covered = sequence.active->covers(token, 0);
    return row;
}

}  // namespace

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
    if (core.drafter.uses_head() && core.head == nullptr)
        return failed("the drafter needs a head, but none was given");
    return {};
}

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
    sequence->active = &core.active;
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
    std::vector<int> rows(sequence.outcome.prompt_tokens);
    std::iota(rows.begin(), rows.end(), 0);
    core.store_features(sequence, 0, rows);

    const TokenId token = first[0].token;
    sequence.outcome.finish = truncate_at_stop(sequence, {&token, 1}, core.limits()).second;
    const TokenRow row = first_token_row(core, sequence, token);
    const std::size_t new_text = sequence.append({&token, 1});
    core.records.progress(sequence.row, sequence.outcome.text, {row});
    return sequence.outcome.text.substr(sequence.outcome.text.size() - new_text);
}

}  // namespace draftscope
