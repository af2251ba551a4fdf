#include "app/gui/models/finding.h"

#include <gtest/gtest.h>

#include <tuple>

#include "app/gui/models/rounds.h"
#include "app/gui/models/text.h"
#include "base/phase.h"
#include "tests/support/capture_builder.h"

namespace draftscope {
namespace {

using testing::CaptureBuilder;
using testing::node;
using testing::span;

/// Steps of 30, 10, 50 and 20 ns; rounds 1 and 3 are rejections, 3 of a token outside the head's set.
Snapshot four_rounds() {
    CaptureBuilder capture;
    TimeNs at = 0;
    for (const auto& [ns, target, covered] :
         {std::tuple{30, 2, true}, {10, 9, true}, {50, 2, true}, {20, 9, false}}) {
        RoundRecord round = testing::round_of();
        round.nodes = {node(0, -1, 0, 1, 1, true), node(1, 0, 1, 2, 0.5, target == 2)};
        NodeRow& last = round.nodes[target == 2 ? 1 : 0];
        last.target_token_id = target == 2 ? 5 : 9;
        last.target_covered = covered;
        capture.step(at, at + ns, {span(static_cast<int>(Phase::verify), at, at + (ns == 10 ? 9 : 1))},
                     round);
        at += ns;
    }
    return capture.snapshot();
}

TEST(Finding, RejectionsInBothDirections) {
    const Snapshot snapshot = four_rounds();
    const auto find = [&](std::size_t from, int step, RoundMark mark) {
        return find_marked_round(snapshot, 1, from, step, mark);
    };
    EXPECT_EQ(find(0, 1, RoundMark::rejected), 1u);
    EXPECT_EQ(find(1, 1, RoundMark::rejected), 3u);
    EXPECT_EQ(find(3, 1, RoundMark::rejected), std::nullopt);
    EXPECT_EQ(find(3, -1, RoundMark::rejected), 1u);
    EXPECT_EQ(find(1, -1, RoundMark::rejected), std::nullopt);
    EXPECT_EQ(find(0, 1, RoundMark::outside_set), 3u);
    EXPECT_EQ(find(4, -1, RoundMark::rejected), 3u) << "from behind the last one";
}

TEST(Finding, SlowRoundsInTheirOrder) {
    const Snapshot snapshot = four_rounds();
    std::optional<std::size_t> at;
    std::vector<std::size_t> order;
    for (int i = 0; i < 5; ++i) order.push_back(*(at = find_slow_round(snapshot, 1, at)));
    EXPECT_EQ(order, (std::vector<std::size_t>{2, 0, 3, 1, 2}));
    EXPECT_EQ(find_slow_round(snapshot, 1, std::nullopt, static_cast<int>(Phase::verify)), 1u);
    EXPECT_EQ(find_slow_round(snapshot, 1, std::nullopt, static_cast<int>(Phase::head)), std::nullopt);
    EXPECT_EQ(find_slow_round(Snapshot(), 1, std::nullopt), std::nullopt);
}

/// Four rounds with notes as a run and its user leave them.
Snapshot with_notes(const std::vector<std::pair<std::size_t, std::string>>& notes) {
    Snapshot snapshot = four_rounds();
    for (const auto& [round, text] : notes)
        snapshot.notes.push_back({1, snapshot.rounds[round].row.id, 0, text});
    return snapshot;
}

TEST(Notes, TheNewestBookmarkOfARoundCounts) {
    Snapshot snapshot = with_notes({{3, "bookmark: late"},
                                    {1, "bookmark: first text"},
                                    {1, "breakpoint: round 2"},
                                    {2, "bookmark: "},
                                    {1, "bookmark: second text"},
                                    {2, "bookmark removed"},
                                    {0, "a remark of another program"}});
    snapshot.notes.push_back({1, 0, 0, "bookmark: of no round"});
    snapshot.notes.push_back({1, 999, 0, "bookmark: of a deleted round"});
    snapshot.notes.push_back({2, snapshot.rounds[0].row.id, 0, "bookmark: of another run"});
    const std::vector<RoundNotes> notes = find_round_notes(snapshot, 1);
    ASSERT_EQ(notes.size(), 2u);
    EXPECT_EQ(notes[0].round, 1u);
    EXPECT_EQ(notes[0].breakpoint, "round 2");
    EXPECT_EQ(notes[0].bookmark, "second text");
    EXPECT_EQ(describe_notes(notes[0]), "breakpoint: round 2; bookmark: second text");
    EXPECT_EQ(notes[1].round, 3u);
    EXPECT_EQ(notes[1].breakpoint, "");
    EXPECT_EQ(describe_notes(*find_notes(notes, 3)), "bookmark: late");
    EXPECT_EQ(find_notes(notes, 2), nullptr) << "it was removed";
    EXPECT_EQ(describe_notes({0, "", ""}), "bookmark");
    RoundsModel model;
    update_rounds(model, snapshot, 1);
    EXPECT_EQ(model.notes.size(), 2u);
    snapshot.notes.push_back({1, snapshot.rounds[0].row.id, 0, "bookmark: later"});
    update_rounds(model, snapshot, 1);
    EXPECT_EQ(model.notes.size(), 3u) << "without a new round";
}

TEST(Finding, BookmarksInBothDirections) {
    const Snapshot snapshot =
        with_notes({{0, "bookmark: "}, {1, "breakpoint: end of text"}, {2, "bookmark: "}, {3, "bookmark: "}});
    const auto find = [&](std::size_t from, int step) {
        return find_marked_round(snapshot, 1, from, step, RoundMark::bookmark);
    };
    EXPECT_EQ(find(0, 1), 2u) << "not the breakpoint of round 1";
    EXPECT_EQ(find(2, 1), 3u);
    EXPECT_EQ(find(3, 1), std::nullopt);
    EXPECT_EQ(find(3, -1), 2u);
    EXPECT_EQ(find(1, -1), 0u);
    EXPECT_EQ(find(0, -1), std::nullopt);
    EXPECT_EQ(find(4, -1), 3u) << "from behind the last one";
}

TEST(Finding, TextOfOtherPrompts) {
    CaptureBuilder capture(testing::vocabulary({"sun", "moon", "star"}));
    for (const TokenId word : {0, 1, 0}) {
        capture.prompt(PromptRow{});
        RoundRecord round = testing::round_of();
        round.tokens = {testing::token(word, 1)};
        capture.step(0, 10, {}, round);
    }
    const Snapshot snapshot = capture.snapshot();
    const RowId first = snapshot.prompts[0]->id;
    EXPECT_EQ(find_in_other_prompts(snapshot, first, "moon"), 1u);
    EXPECT_EQ(find_in_other_prompts(snapshot, first, "sun"), 2u) << "not the prompt itself";
    EXPECT_EQ(find_in_other_prompts(snapshot, snapshot.prompts[2]->id, "SUN"), 0u) << "from the first one on";
    EXPECT_EQ(find_in_other_prompts(snapshot, first, "star"), std::nullopt);
    EXPECT_EQ(find_in_other_prompts(snapshot, first, ""), std::nullopt);
}

TEST(Overview, ColumnsHoldEveryRoundOnce) {
    RoundsModel model;
    for (int i = 0; i < 10; ++i) {
        RoundCell cell;
        cell.accepted = i % 2;
        cell.step_ns = i == 7 ? 900 : 100 + i;
        cell.excluded = i == 0 ? Excluded::warmup : Excluded::no;
        model.cells.push_back(cell);
    }
    const std::vector<OverviewColumn> columns = build_overview(model, 3);
    ASSERT_EQ(columns.size(), 3u);
    std::size_t next = 0;
    for (const OverviewColumn& column : columns) {
        EXPECT_EQ(column.first, next);
        next += column.count;
    }
    EXPECT_EQ(next, 10u);
    EXPECT_EQ(columns[2].slowest, 7u);
    EXPECT_EQ(columns[2].slowest_ns, 900);
    EXPECT_EQ(columns[0].slowest, 2u) << "the warm-up does not count";
    EXPECT_EQ(build_overview(model, 100).size(), 10u);
    EXPECT_TRUE(build_overview({}, 5).empty());
}

/// Sequences 1 and 2; then 3 takes the place of 1, 4 joins, and 2 is alone.
TEST(BatchRows, HoldOneSequenceAfterAnother) {
    CaptureBuilder capture;
    for (int i = 0; i < 4; ++i) capture.prompt(PromptRow{});
    TimeNs at = 0;
    for (const std::vector<RowId>& prompts :
         std::vector<std::vector<RowId>>{{1, 2}, {1, 2}, {2, 3}, {2, 3, 4}, {2}}) {
        StepRecord record;
        record.step.start_ns = at;
        record.step.end_ns = at += 10;
        for (const RowId prompt : prompts) {
            record.rounds.push_back(testing::round_of());
            record.rounds.back().round.prompt_id = prompt;
        }
        capture.step(record);
    }
    const Snapshot snapshot = capture.snapshot();
    RoundsModel model;
    update_rounds(model, snapshot, 1);
    EXPECT_EQ(model.columns, 5);
    EXPECT_EQ(model.rows.size(), 3u);
    std::vector<std::tuple<int, int, bool>> places;
    for (const RoundCell& cell : model.cells)
        places.emplace_back(cell.column, cell.row, cell.first_of_prompt);
    EXPECT_EQ(places, (std::vector<std::tuple<int, int, bool>>{{0, 0, true},
                                                               {0, 1, true},
                                                               {1, 0, false},
                                                               {1, 1, false},
                                                               {2, 1, false},
                                                               {2, 0, true},
                                                               {3, 1, false},
                                                               {3, 0, false},
                                                               {3, 2, true},
                                                               {4, 1, false}}));
    RoundsModel alone;
    update_rounds(alone, four_rounds(), 1);
    EXPECT_EQ(alone.columns, 4);
    EXPECT_EQ(alone.rows.size(), 1u);
    EXPECT_EQ(alone.cells.back().column, 3);
}

}  // namespace
}  // namespace draftscope
