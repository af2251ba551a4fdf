#pragma once

#include "base/rng.h"
#include "capture/record.h"

/// Synthetic steps for the benchmarks of the capture file.
namespace draftscope {

inline constexpr int made_spans_per_step = 40;
inline constexpr int made_nodes_per_round = 12;
inline constexpr int made_tokens_per_round = 3;
inline constexpr TimeNs synthetic_span_ns = 1000;  ///< from the start of one span to the start of the next
inline constexpr TimeNs made_step_ns = made_spans_per_step * synthetic_span_ns;

/// Makes step `id` (from 1) of run 1 with its spans. With `whole`, it has a round of prompt 1 with tree,
/// tokens and head.
inline StepRecord make_synthetic_step(RowId id, bool whole, Rng& rng) {
    StepRecord record;
    const TimeNs start = (id - 1) * made_step_ns;
    record.step = {id, 1, static_cast<int>(id), start, start + made_step_ns, 0, Excluded::no};
    for (int i = 0; i < made_spans_per_step; ++i) {
        SpanRow span;
        span.id = (id - 1) * made_spans_per_step + i + 1;
        span.run_id = 1;
        span.step_id = span.round_id = id;
        span.phase_id = 2 + i % 9;
        span.level = i / 10;
        span.start_ns = start + i * synthetic_span_ns;
        span.end_ns = span.start_ns + 400 + (span.id * 7919) % 600;
        span.rows = 8;
        span.bytes = 123456 + span.id;
        record.spans.push_back(span);
    }
    if (!whole) return record;
    RoundRecord round;
    round.round.id = round.round.step_id = id;
    round.round.run_id = round.round.prompt_id = 1;
    round.round.start_ns = start;
    round.round.end_ns = start + made_step_ns;
    round.round.tree_nodes = made_nodes_per_round;
    round.round.drafted = made_nodes_per_round - 1;
    round.round.accepted = made_tokens_per_round - 1;
    round.round.committed = made_tokens_per_round;
    for (int n = 0; n < made_nodes_per_round; ++n) {
        NodeRow node;
        node.round_id = id;
        node.node = n;
        node.parent = n - 1;
        node.depth = n;
        node.token_id = static_cast<TokenId>(rng.below(49152));
        node.draft_logprob = static_cast<float>(-rng.uniform());
        round.nodes.push_back(node);
    }
    for (int t = 0; t < made_tokens_per_round; ++t) {
        TokenRow token;
        token.prompt_id = 1;
        token.position = static_cast<int>(id) * made_tokens_per_round + t;
        token.round_id = id;
        token.token_id = static_cast<TokenId>(rng.below(49152));
        round.tokens.push_back(token);
    }
    HeadEvalRow eval;
    eval.run_id = 1;
    eval.round_id = id;
    eval.head = "full";
    eval.head_ns = 10'000;
    eval.accepted = round.round.accepted;
    eval.committed = eval.covered = round.round.committed;
    round.head_evals.push_back(eval);
    record.rounds.push_back(std::move(round));
    return record;
}
/// Number of measurement rows in one step.
inline std::int64_t rows_per_step(bool whole) {
    return 1 + made_spans_per_step + (whole ? 1 + made_nodes_per_round + made_tokens_per_round + 1 : 0);
}

}  // namespace draftscope
