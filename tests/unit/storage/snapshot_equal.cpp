#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "random_capture.h"

namespace draftscope::testing {

namespace {

auto fields(const RunRow& r) {
    return std::tie(r.id, r.name, r.started_monotonic, r.started_utc, r.ended, r.frontend, r.target,
                    r.drafter, r.head, r.tree, r.verify, r.temperature, r.seed, r.batch, r.threads, r.backend,
                    r.precision, r.numerics, r.tier, r.synthetic, r.acceptance, r.vocab_id, r.config_json,
                    r.machine_json);
}
auto fields(const PromptRow& r) {
    return std::tie(r.id, r.run_id, r.ordinal, r.external_id, r.turn, r.suite, r.category, r.text, r.output,
                    r.prompt_tokens, r.generated_tokens, r.prefill_ns, r.finish);
}
auto fields(const RowRange& r) {
    return std::tie(r.first, r.count);
}
auto fields(const StepEntry& e) {
    const StepRow& r = e.row;
    return std::tuple_cat(std::tie(r.id, r.run_id, r.ordinal, r.start_ns, r.end_ns, r.paused_ns, r.excluded),
                          fields(e.rounds), fields(e.spans));
}
auto fields(const RoundEntry& e) {
    const RoundRow& r = e.row;
    return std::tuple_cat(
        std::tie(r.id, r.run_id, r.step_id, r.prompt_id, r.ordinal, r.start_ns, r.end_ns, r.context_length,
                 r.tree_nodes, r.tree_depth, r.drafted, r.accepted, r.committed, r.clipped, e.step_index),
        fields(e.nodes), fields(e.tops), fields(e.tokens), fields(e.head_evals));
}
auto fields(const NodeRow& r) {
    return std::tie(r.round_id, r.node, r.parent, r.depth, r.token_id, r.draft_logprob, r.cum_logprob,
                    r.target_prob, r.target_rank, r.accepted, r.target_token_id, r.target_token_prob,
                    r.target_covered);
}
auto fields(const NodeTopRow& r) {
    return std::tie(r.round_id, r.node, r.rank, r.token_id, r.target_prob);
}
auto fields(const TokenRow& r) {
    return std::tie(r.prompt_id, r.position, r.round_id, r.token_id, r.source, r.depth, r.rank, r.covered);
}
auto fields(const SpanRow& r) {
    return std::tie(r.id, r.run_id, r.step_id, r.round_id, r.phase_id, r.level, r.lane, r.thread_id,
                    r.start_ns, r.end_ns, r.rows, r.bytes, r.nesting);
}
auto fields(const HeadEvalRow& r) {
    return std::tie(r.run_id, r.round_id, r.head, r.mode, r.active_rows, r.bytes, r.head_ns, r.accepted,
                    r.committed, r.covered, r.covered_mass);
}
auto fields(const GpuOpRow& r) {
    return std::tie(r.id, r.run_id, r.step_id, r.phase_id, r.stream, r.name, r.start_ns, r.end_ns,
                    r.graph_node_id, r.correlation_id, r.grid, r.block, r.bytes, r.device, r.registers);
}
auto fields(const GpuCounterRow& r) {
    return std::tie(r.run_id, r.step_id, r.phase_id, r.name, r.value);
}
auto fields(const NvtxRangeRow& r) {
    return std::tie(r.run_id, r.domain, r.name, r.thread_id, r.start_ns, r.end_ns, r.payload);
}
auto fields(const CounterRow& r) {
    return std::tie(r.run_id, r.time_ns, r.name, r.value);
}
auto fields(const LossRow& r) {
    return std::tie(r.run_id, r.time_ns, r.kind, r.count);
}
auto fields(const NoteRow& r) {
    return std::tie(r.run_id, r.round_id, r.time_ns, r.text);
}
auto fields(const VocabRow& r) {
    return std::tie(r.vocab_id, r.token_id, r.bytes, r.text, r.rank, r.count);
}
auto fields(const std::shared_ptr<const PromptRow>& r) {
    return fields(*r);
}
auto fields(const LateSpan& r) {
    return std::tie(r.span, r.newest_step);
}
auto fields(const TimeNs& r) {
    return std::tie(r);
}

template <typename Table>
void expect_table(const char* name, const Table& a, const Table& b) {
    ASSERT_EQ(a.size(), b.size()) << name;
    for (std::size_t i = 0; i < a.size(); ++i)
        ASSERT_TRUE(fields(a[i]) == fields(b[i])) << name << ", row " << i;
}

/// Compares clock anchors by the difference of their clocks, since the file moves both to the run's start or
/// end. When a file is read, the ends of several runs come together.
void expect_clocks(const Snapshot& a, const Snapshot& b) {
    const auto distances = [](const Snapshot& snapshot) {
        std::vector<std::pair<RowId, TimeNs>> out;
        for (const ClockAnchorRow& anchor : snapshot.anchors)
            out.emplace_back(anchor.run_id, anchor.utc_ns - anchor.monotonic_ns);
        std::sort(out.begin(), out.end());
        return out;
    };
    EXPECT_EQ(distances(a), distances(b));
}

}  // namespace

void expect_equal(const Snapshot& a, const Snapshot& b) {
    expect_table("runs", a.runs, b.runs);
    expect_table("run_end_ns", a.run_end_ns, b.run_end_ns);
    expect_table("prompts", a.prompts, b.prompts);
    expect_table("steps", a.steps, b.steps);
    expect_table("rounds", a.rounds, b.rounds);
    expect_table("nodes", a.nodes, b.nodes);
    expect_table("tops", a.tops, b.tops);
    expect_table("tokens", a.tokens, b.tokens);
    expect_table("spans", a.spans, b.spans);
    expect_table("late_spans", a.late_spans, b.late_spans);
    expect_table("head_evals", a.head_evals, b.head_evals);
    expect_table("gpu_ops", a.gpu_ops, b.gpu_ops);
    expect_table("gpu_counters", a.gpu_counters, b.gpu_counters);
    expect_table("nvtx_ranges", a.nvtx_ranges, b.nvtx_ranges);
    expect_table("counters", a.counters, b.counters);
    expect_table("losses", a.losses, b.losses);
    expect_table("notes", a.notes, b.notes);
    expect_clocks(a, b);
    ASSERT_EQ(a.vocabs.size(), b.vocabs.size());
    for (std::size_t i = 0; i < a.vocabs.size(); ++i)
        expect_table("vocab", a.vocabs[i]->rows, b.vocabs[i]->rows);
}

}  // namespace draftscope::testing
