#pragma once

#include "base/rng.h"
#include "capture/record.h"
#include "tests/support/capture_builder.h"

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
    RowIds last;
    last.run = last.prompt = 1;
    last.round = id - 1;
    last.span = (id - 1) * made_spans_per_step;
    for (int i = 0; i < made_spans_per_step; ++i) {
        const RowId number = last.span + i + 1;
        const TimeNs begin = start + i * synthetic_span_ns;
        SpanRow span =
            testing::span(2 + i % 9, begin, begin + 400 + (number * 7919) % 600, 0, 123456 + number);
        span.round_id = id;
        span.level = i / 10;
        span.rows = 8;
        record.spans.push_back(span);
    }
    testing::RecordBuilder rows(last);
    if (!whole) return rows.step(std::move(record));
    RoundRecord round = testing::round_of(
        made_tokens_per_round,
        {{"full", HeadMode::drive, 10'000, made_tokens_per_round, made_tokens_per_round, 0, {}, 0}});
    round.round.start_ns = start;
    round.round.end_ns = start + made_step_ns;
    round.round.tree_nodes = made_nodes_per_round;
    round.round.draft_tokens = made_nodes_per_round - 1;
    for (int n = 0; n < made_nodes_per_round; ++n) {
        const auto token = static_cast<TokenId>(rng.below(49152));
        round.nodes.push_back(testing::node(n, n - 1, n, token, 1.0));
        round.nodes.back().draft_logprob = static_cast<float>(-rng.uniform());
    }
    for (int t = 0; t < made_tokens_per_round; ++t) {
        round.tokens.push_back(testing::token(static_cast<TokenId>(rng.below(49152)), 0, true));
        round.tokens.back().position = static_cast<int>(id) * made_tokens_per_round + t;
    }
    record.rounds.push_back(std::move(round));
    return rows.step(std::move(record));
}
/// Number of measurement rows in one step.
inline std::int64_t rows_per_step(bool whole) {
    return 1 + made_spans_per_step + (whole ? 1 + made_nodes_per_round + made_tokens_per_round + 1 : 0);
}

}  // namespace draftscope
