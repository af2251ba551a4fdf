#include <gtest/gtest.h>

#include <filesystem>
#include <tuple>

#include "capture/queries.h"
#include "file_helpers.h"
#include "random_capture.h"
#include "tests/support/results.h"
#include "tests/support/scratch_folder.h"

// Reading a capture in parts while it grows must give the same as reading it at once.
namespace draftscope {
namespace {

using testing::apply_all, testing::expect_equal, testing::RandomCapture, testing::ScratchFolder;

class IntoCapture : public RecordSink {
  public:
    void push(Record record) override {
        ++records;
        capture.apply(record);
    }
    Capture capture;
    int records = 0;
};

TEST(StoredTrees, LargeFilesReadTreesOnDemand) {
    const ScratchFolder folder;
    const std::string path = folder.file("a.dscope");
    const std::vector<Record> records = RandomCapture(3, {2, 3, 60, 2, true}).records();
    testing::write_all(path, records);
    const auto whole = load_capture(path);
    const auto part = load_capture(path, 0);
    ASSERT_TRUE(whole.ok());
    ASSERT_TRUE(is_ok(part));
    EXPECT_EQ((*whole)->stored, nullptr);
    ASSERT_NE((*part)->stored, nullptr);
    EXPECT_EQ((*part)->nodes.size(), 0u);
    EXPECT_EQ((*part)->tops.size(), 0u);
    ASSERT_EQ((*part)->rounds.size(), (*whole)->rounds.size());
    // Reads backwards and again, so that some trees are cached and some are not. The file may be deleted by
    // then.
    std::filesystem::remove(path);
    std::size_t nodes = 0, tops = 0;
    for (const int pass : {0, 1})
        for (std::size_t i = (*part)->rounds.size(); i-- > 0;) {
            const auto a = (*whole)->tree(i), b = (*part)->tree(i);
            ASSERT_EQ(b->problem, "");
            ASSERT_EQ(a->nodes.size(), b->nodes.size());
            ASSERT_EQ(a->tops.size(), b->tops.size());
            for (std::size_t n = 0; n < a->nodes.size(); ++n) {
                EXPECT_EQ(a->nodes[n].parent, b->nodes[n].parent);
                EXPECT_EQ(a->nodes[n].token_id, b->nodes[n].token_id);
                EXPECT_EQ(a->nodes[n].draft_logprob, b->nodes[n].draft_logprob);
                EXPECT_EQ(a->nodes[n].target_prob, b->nodes[n].target_prob);
            }
            for (std::size_t n = 0; n < a->tops.size(); ++n)
                EXPECT_EQ(a->tops[n].token_id, b->tops[n].token_id);
            nodes += pass == 0 ? b->nodes.size() : 0;
            tops += pass == 0 ? b->tops.size() : 0;
        }
    EXPECT_EQ(nodes, (*whole)->nodes.size());
    EXPECT_EQ(tops, (*whole)->tops.size());
}

TEST(StoredTrees, DamageIsReportedWhenRead) {
    const ScratchFolder folder;
    const std::string path = folder.file("a.dscope");
    testing::write_all(path, RandomCapture(3, {1, 3, 30, 1, true}).records());
    testing::execute(path, "UPDATE node SET node = 9 WHERE round_id = 5 AND node = 0");
    EXPECT_FALSE(load_capture(path).ok());
    const auto part = require(load_capture(path, 0));
    EXPECT_NE(part->tree(4)->problem.find("round 5 has node 9"), std::string::npos) << part->tree(4)->problem;
    EXPECT_TRUE(part->tree(4)->nodes.empty());
    EXPECT_EQ(part->tree(3)->problem, "");
}

TEST(StoredTrees, LiveFilesAreReadCompletely) {
    const ScratchFolder folder;
    const std::string path = folder.file("live.dscope");
    auto writer = require(CaptureWriter::create(path, false));
    for (const Record& record : RandomCapture(3, {1, 3, 30, 1, false}).records()) writer->push(record);
    ASSERT_TRUE(writer->flush().ok());
    const auto live = require(load_capture(path, 0));
    EXPECT_EQ(live->stored, nullptr);
    EXPECT_GT(live->nodes.size(), 0u);
}

/// Writes a file whose spans fill several blocks of the read-ahead thread.
std::string write_many_spans(const ScratchFolder& folder, int steps) {
    const std::string path = folder.file("many.dscope");
    std::vector<Record> records = RandomCapture(5, {1, 3, steps, 1, true}).records();
    RowId last_id = 0;
    for (Record& record : records) {
        if (auto* late = std::get_if<SpansRecorded>(&record))
            for (SpanRow& span : late->spans) span.id = ++last_id;
        auto* step = std::get_if<StepRecord>(&record);
        if (step == nullptr || step->spans.empty()) continue;
        step->spans.resize(step->spans.size() + 100, step->spans.front());
        for (SpanRow& span : step->spans) span.id = ++last_id;
    }
    testing::write_all(path, records);
    return path;
}

std::vector<std::string> lane_texts(const Snapshot& snapshot, RowId run_id) {
    std::vector<std::string> out;
    const auto run = snapshot.lanes_for(run_id);
    if (run == nullptr) return out;
    for (const TimelineLane& lane : run->lanes)
        for (const TimelineRow& row : lane.rows)
            for (std::size_t i = 0; i < row.size(); ++i)
                out.push_back(fmt::format("{} {} {}: {}-{} {} {}", lane.name, lane.key, lane.sub_key,
                                          row.start(i), row.end(i), row.phase(i), row.level(i)));
    return out;
}

/// All fields of the row behind an interval. Nesting is not stored; it is the interval's row on the lane.
auto fields(const SpanRow& s) {
    return std::tie(s.id, s.run_id, s.step_id, s.round_id, s.phase_id, s.level, s.lane, s.thread_id,
                    s.start_ns, s.end_ns, s.rows, s.bytes);
}

TEST(StoredSpans, MatchSpansInMemory) {
    for (const std::uint64_t seed : {5u, 6u, 7u}) {
        const ScratchFolder folder;
        const std::string path =
            seed == 5 ? write_many_spans(folder, 300) : folder.file(fmt::format("{}.dscope", seed));
        if (seed != 5) testing::write_all(path, RandomCapture(seed, {2, 3, 40, 2, true}).records());
        const auto memory = require(load_capture(path, no_preload_limit)),
                   file = require(load_capture(path, 0));
        const Snapshot &whole = *memory, &part = *file;
        ASSERT_NE(part.stored, nullptr);
        EXPECT_TRUE(part.spans.empty());
        if (seed == 5) {
            ASSERT_GT(whole.spans.size(), 20'000u);
        }
        for (const RunRow& run : whole.runs) {
            EXPECT_EQ(lane_texts(whole, run.id), lane_texts(part, run.id));
            const auto a = whole.lanes_for(run.id), b = part.lanes_for(run.id);
            ASSERT_EQ(a == nullptr, b == nullptr);
            if (a == nullptr) continue;
            for (std::size_t l = 0; l < a->lanes.size(); ++l)
                for (std::size_t r = 0; r < a->lanes[l].rows.size(); ++r) {
                    const TimelineRow &x = a->lanes[l].rows[r], &y = b->lanes[l].rows[r];
                    const bool spans =
                        a->lanes[l].kind == LaneKind::cpu || a->lanes[l].kind == LaneKind::levels;
                    for (std::size_t i = 0; i < x.size(); i += 1 + x.size() / 50) {
                        if (!spans) {
                            EXPECT_EQ(x.source(i), y.source(i));
                            continue;
                        }
                        const auto in_file = part.span(y.source(i));
                        ASSERT_TRUE(in_file.has_value());
                        EXPECT_EQ(fields(*whole.span(x.source(i))), fields(*in_file));
                    }
                }
            const auto stats_a = phase_stats(whole, run.id), stats_b = phase_stats(part, run.id);
            ASSERT_EQ(stats_a.size(), stats_b.size());
            for (std::size_t i = 0; i < stats_a.size(); ++i) {
                EXPECT_EQ(stats_a[i].phase_id, stats_b[i].phase_id);
                EXPECT_EQ(stats_a[i].total_ns, stats_b[i].total_ns);
                EXPECT_EQ(stats_a[i].exposed_ns, stats_b[i].exposed_ns);
                EXPECT_EQ(stats_a[i].median_ns, stats_b[i].median_ns);
                EXPECT_EQ(stats_a[i].gb_per_s, stats_b[i].gb_per_s);
            }
            const auto heads_a = head_stats(whole, run.id), heads_b = head_stats(part, run.id);
            ASSERT_EQ(heads_a.size(), heads_b.size());
            for (std::size_t i = 0; i < heads_a.size(); ++i)
                EXPECT_EQ(heads_a[i].bytes_per_call, heads_b[i].bytes_per_call);
        }
        for (std::size_t i = 0; i < whole.steps.size(); ++i) {
            const StepPhases a = step_phases(whole, i), b = step_phases(part, i);
            EXPECT_EQ(a.ns, b.ns);
            EXPECT_EQ(a.bytes, b.bytes);
            EXPECT_EQ(a.remainder_ns, b.remainder_ns);
        }
    }
}

TEST(StoredSpans, MissingSpansAreAbsent) {
    const ScratchFolder folder;
    const std::string path = folder.file("a.dscope");
    testing::write_all(path, RandomCapture(3, {1, 3, 30, 1, true}).records());
    const auto file = require(load_capture(path, 0));
    EXPECT_FALSE(file->span(4'000'000'000u).has_value());
}

TEST(StoredSpans, ImpossibleValuesNameTableRowAndColumn) {
    const ScratchFolder folder;
    const std::string path = folder.file("a.dscope");
    testing::write_all(path, RandomCapture(3, {1, 3, 30, 1, true}).records());
    testing::execute(path,
                     "PRAGMA ignore_check_constraints = ON; UPDATE span SET phase_id = 99 WHERE id = 7");
    const auto file = load_capture(path, 0);
    ASSERT_FALSE(file.ok());
    EXPECT_NE(file.error().message.find("table span, row 7: column phase_id holds 99"), std::string::npos)
        << file.error().message;
}

TEST(StoredSpans, SaveCopyKeepsAllRows) {
    const ScratchFolder folder;
    const std::string path = folder.file("a.dscope"), copy = folder.file("copy.dscope");
    testing::write_all(path, RandomCapture(3, {1, 3, 30, 1, true}).records());
    const auto file = require(load_capture(path, 0));
    std::filesystem::remove(path);  // an open capture can still be saved
    ASSERT_TRUE(file->stored->save_copy(copy).ok());
    const auto saved = require(load_capture(copy, no_preload_limit));
    EXPECT_GT(saved->spans.size(), 0u);
    EXPECT_EQ(lane_texts(*file, 1), lane_texts(*saved, 1));
}

TEST(SpansReadAhead, ReportsTheSameDamage) {
    const ScratchFolder folder;
    const std::string path = write_many_spans(folder, 120);
    testing::execute(path, "UPDATE span SET phase_id = 99 WHERE id = (SELECT max(id) FROM span)");
    const auto alone = load_capture(path, no_preload_limit), ahead = load_capture(path, 0);
    ASSERT_FALSE(alone.ok());
    ASSERT_FALSE(ahead.ok());
    EXPECT_EQ(alone.error().message, ahead.error().message);
    EXPECT_EQ(alone.error().kind, ahead.error().kind);
}

TEST(SpansReadAhead, StopWithTheirReader) {
    const ScratchFolder folder;
    const std::string path = write_many_spans(folder, 300);
    auto follower = require(CaptureFollower::open(path, 0));
    IntoCapture into;
    int steps = 0;
    const Status stopped = follower->poll(into, [&] { return ++steps < 3; });
    ASSERT_FALSE(stopped.ok());
    EXPECT_EQ(stopped.error().kind, ErrorKind::cancelled);
}

class Following : public ::testing::TestWithParam<int> {};

TEST_P(Following, MatchesTheWritersRecords) {
    const ScratchFolder folder;
    const std::string path = folder.file("live.dscope");
    const auto seed = static_cast<std::uint64_t>(GetParam());
    const std::vector<Record> records = RandomCapture(seed, {2, 3, 40, 1 + GetParam() % 2, true}).records();
    auto writer = require(CaptureWriter::create(path, false));
    auto follower = require(CaptureFollower::open(path));
    Rng rng(seed);
    IntoCapture into;
    for (std::size_t i = 0; i < records.size(); ++i) {
        writer->push(records[i]);
        if (rng.below(20) != 0) continue;
        ASSERT_TRUE(writer->flush().ok());
        ASSERT_TRUE(is_ok(follower->poll(into)));
        const Snapshot now = into.capture.snapshot(1);
        const Snapshot meant =
            apply_all({records.begin(), records.begin() + static_cast<std::ptrdiff_t>(i) + 1});
        ASSERT_EQ(now.steps.size(), meant.steps.size());
        ASSERT_EQ(now.spans.size(), meant.spans.size());
        ASSERT_EQ(now.tokens.size(), meant.tokens.size());
        ASSERT_EQ(now.head_evals.size(), meant.head_evals.size());
        ASSERT_EQ(now.prompts.size(), meant.prompts.size());
        for (std::size_t p = 0; p < now.prompts.size(); ++p) {
            EXPECT_EQ(now.prompts[p]->output, meant.prompts[p]->output);
            EXPECT_EQ(now.prompts[p]->finish, meant.prompts[p]->finish);
        }
        ASSERT_EQ(now.runs.size(), meant.runs.size());
        for (std::size_t r = 0; r < now.runs.size(); ++r) EXPECT_EQ(now.runs[r].ended, meant.runs[r].ended);
    }
    ASSERT_TRUE(writer->close().ok());
    ASSERT_TRUE(follower->poll(into).ok());
    EXPECT_FALSE(follower->live());
    const int seen = into.records;
    ASSERT_TRUE(follower->poll(into).ok());
    EXPECT_EQ(into.records, seen);  // no new rows, so no records
    const auto loaded = require(load_capture(path));
    const Snapshot followed = into.capture.snapshot(1);
    EXPECT_EQ(followed.steps.size(), loaded->steps.size());
    EXPECT_EQ(followed.gpu_ops.size(), loaded->gpu_ops.size());
    EXPECT_EQ(followed.nvtx_ranges.size(), loaded->nvtx_ranges.size());
    EXPECT_EQ(followed.counters.size(), loaded->counters.size());
    EXPECT_EQ(followed.notes.size(), loaded->notes.size());
    EXPECT_EQ(followed.run_end_ns, loaded->run_end_ns);
}
INSTANTIATE_TEST_SUITE_P(Seeds, Following, ::testing::Range(1, 7));

TEST(Follower, StopsOnCancel) {
    const ScratchFolder folder;
    const std::string path = folder.file("a.dscope");
    testing::write_all(path, RandomCapture(2, {1, 2, 40, 1, true}).records());
    auto follower = require(CaptureFollower::open(path));
    IntoCapture into;
    int steps = 0;
    const Status stopped = follower->poll(into, [&] { return ++steps < 10; });
    ASSERT_FALSE(stopped.ok());
    EXPECT_EQ(stopped.error().kind, ErrorKind::cancelled);
    EXPECT_EQ(into.capture.snapshot(1).steps.size(), 10u);
}

}  // namespace
}  // namespace draftscope
