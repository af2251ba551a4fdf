#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "random_capture.h"
#include "table_rows.h"

namespace draftscope::testing {

namespace {

// Each function returns what differs; "" if nothing does.
template <typename Row>
std::string_view difference(const Row& a, const Row& b) {
    return different_column(a, b);
}
std::string_view difference(const RunRow& a, const RunRow& b) {
    return a.started_monotonic != b.started_monotonic ? "started_monotonic" : different_column(a, b);
}
std::string_view difference(const SpanRow& a, const SpanRow& b) {
    return a.nesting != b.nesting ? "nesting" : different_column(a, b);
}
std::string_view difference(const std::shared_ptr<const PromptRow>& a,
                            const std::shared_ptr<const PromptRow>& b) {
    return different_column(*a, *b);
}
std::string_view difference(const StepEntry& a, const StepEntry& b) {
    const auto ranges = [](const StepEntry& e) {
        return std::tie(e.rounds.first, e.rounds.count, e.spans.first, e.spans.count);
    };
    return ranges(a) != ranges(b) ? "ranges" : different_column(a.row, b.row);
}
std::string_view difference(const RoundEntry& a, const RoundEntry& b) {
    const auto ranges = [](const RoundEntry& e) {
        return std::tie(e.step_index, e.nodes.first, e.nodes.count, e.tops.first, e.tops.count,
                        e.tokens.first, e.tokens.count, e.head_evals.first, e.head_evals.count);
    };
    return ranges(a) != ranges(b) ? "ranges" : different_column(a.row, b.row);
}
std::string_view difference(const LateSpan& a, const LateSpan& b) {
    return a.span != b.span ? "span" : a.newest_step != b.newest_step ? "newest_step" : "";
}
std::string_view difference(const TimeNs& a, const TimeNs& b) {
    return a != b ? "time" : "";
}

template <typename Table>
void expect_table(const char* name, const Table& a, const Table& b) {
    ASSERT_EQ(a.size(), b.size()) << name;
    for (std::size_t i = 0; i < a.size(); ++i) ASSERT_EQ(difference(a[i], b[i]), "") << name << ", row " << i;
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
