#include "app/gui/models/coverage.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "tests/support/capture_builder.h"

namespace draftscope {
namespace {

using testing::CaptureBuilder;
using ::testing::HasSubstr;
using testing::token;
using testing::vocabulary;

std::vector<std::string> numbered_words(int n) {
    std::vector<std::string> words;
    for (int i = 0; i < n; ++i) words.push_back(fmt::format("w{}", i));
    return words;
}

CoverageModel make_model(CaptureBuilder& built, std::optional<std::size_t> round = std::nullopt) {
    const Snapshot snapshot = built.snapshot();
    CoverageIndex index;
    index.update(snapshot, 1);
    return build_coverage(snapshot, index, round);
}

RC_GTEST_PROP(Coverage, CurveTailAndMinSizeEqualCounting, ()) {
    const int vocab = *rc::gen::inRange(1, 300);
    const auto ids = *rc::gen::nonEmpty(rc::gen::container<std::vector<int>>(rc::gen::inRange(0, vocab)));
    CaptureBuilder built(vocabulary(numbered_words(vocab)));
    RoundRecord round;
    for (const int id : ids) round.tokens.push_back(token(id, 1, id % 3 != 0));
    built.step(0, 10, {}, round);
    const CoverageModel model = make_model(built);
    RC_ASSERT(model.curves.size() == 1u);
    const auto counted = [&](double v) {
        return static_cast<double>(std::count_if(ids.begin(), ids.end(), [&](int id) { return id < v; })) /
               static_cast<double>(ids.size());
    };
    for (const CoveragePoint& point : model.curves[0].points)
        RC_ASSERT(std::abs(point.coverage - counted(point.v)) < 1e-12);
    RC_ASSERT(model.curves[0].points.back().v == vocab);
    std::int64_t tokens = 0, missed = 0;
    double edge = 1;
    for (const RankBin& bin : model.tail) {
        RC_ASSERT(bin.from == edge);
        edge = bin.to;
        tokens += bin.tokens;
        missed += bin.missed;
    }
    RC_ASSERT(tokens == static_cast<std::int64_t>(ids.size()));
    RC_ASSERT(missed == std::count_if(ids.begin(), ids.end(), [](int id) { return id % 3 == 0; }));
    RC_ASSERT(counted(model.min_v_for_99) >= 0.99);
    RC_ASSERT(counted(model.min_v_for_99 - 1) < 0.99);
}

TEST(Coverage, SkipsThePrefillTokenAndCountsUnrankedTokens) {
    CaptureBuilder built(vocabulary(numbered_words(10)));
    RoundRecord round;
    round.tokens = {token(0, 0, true, TokenSource::prefill), token(1, 1), token(99, 2, false)};
    built.step(0, 10, {}, round);
    const CoverageModel model = make_model(built);
    EXPECT_EQ(model.curves[0].tokens, 2);
    EXPECT_EQ(model.unranked, 1);
    EXPECT_DOUBLE_EQ(model.curves[0].points.back().coverage, 0.5);
    EXPECT_EQ(model.min_v_for_99, 0) << "no shortlist contains a token outside the ranking";
}

TEST(Coverage, CategoryCurvesMatchWhenBuiltIncrementally) {
    CaptureBuilder built(vocabulary(numbered_words(8)));
    built.prompt("code");
    built.prompt("chat");
    CoverageIndex grown;
    for (int i = 0; i < 12; ++i) {
        RoundRecord round;
        round.round.prompt_id = 1 + i % 2;
        round.tokens = {token(i % 8, 1)};
        built.step(i * 10, i * 10 + 10, {}, round);
        grown.update(built.snapshot(), 1);
    }
    const Snapshot snapshot = built.snapshot();
    CoverageIndex whole;
    whole.update(snapshot, 1);
    EXPECT_EQ(grown.all().by_rank, whole.all().by_rank);
    const CoverageModel model = build_coverage(snapshot, grown, std::nullopt);
    ASSERT_EQ(model.curves.size(), 3u);
    EXPECT_EQ(model.curves[0].label, "all");
    EXPECT_EQ(model.curves[1].label, "chat");
    EXPECT_EQ(model.curves[1].tokens + model.curves[2].tokens, model.curves[0].tokens);
}

TEST(Coverage, MarksTheDrivingHeadAndTheRoundsTokens) {
    CaptureBuilder built(vocabulary(numbered_words(8)));
    RoundRecord round;
    round.tokens = {token(2, 1), token(7, 2, false)};
    HeadEvalRow eval;
    eval.head = "microspec:w=3072";
    eval.active_rows = 4;
    eval.row_tokens = 4;
    eval.committed = 2;
    eval.covered = 1;
    round.head_evals = {eval};
    built.step(0, 10, {}, round);
    const CoverageModel model = make_model(built, 0);
    ASSERT_EQ(model.heads.size(), 1u);
    EXPECT_EQ(model.heads[0].size_text, "shortlist of 4 tokens");
    HeadStats beams;
    beams.active_rows = 14256;
    beams.row_tokens = 6255;
    EXPECT_EQ(describe_shortlist(beams),
              "6255 tokens in a row's shortlist, 14256 in all that a level's call reads");
    EXPECT_DOUBLE_EQ(model.heads[0].coverage, 0.5);
    EXPECT_DOUBLE_EQ(model.heads[0].active_rows, 4);
    EXPECT_TRUE(model.heads[0].is_dynamic);
    ASSERT_EQ(model.round_tokens.size(), 2u);
    EXPECT_DOUBLE_EQ(model.round_tokens[1].rank, 8);
    EXPECT_FALSE(model.round_tokens[1].covered);
}

TEST(Coverage, MarksShadowHeadsAndFollowsThemRoundByRound) {
    CaptureBuilder built(vocabulary(numbered_words(8)));
    const auto eval = [](const char* head, HeadMode mode, int covered) {
        HeadEvalRow row{.head = head,
                        .mode = mode,
                        .active_rows = 4,
                        .committed = 2,
                        .covered = covered,
                        .covered_mass = 0.25 * covered};
        return row;
    };
    for (int i = 0; i < 40; ++i) {
        RoundRecord round;
        round.tokens = {token(2, 1), token(i % 2 == 0 ? 2 : 7, 2)};
        round.head_evals = {eval("fr-spec:v=4", HeadMode::drive, 2), eval("full", HeadMode::calibration, 2),
                            eval("microspec", HeadMode::selfpaced, i < 20 ? 0 : 2),
                            eval("coral", HeadMode::aligned, 1)};
        built.step(i * 10, i * 10 + 10, {}, round);
    }
    const CoverageModel model = make_model(built);
    ASSERT_EQ(model.heads.size(), 3u);
    EXPECT_EQ(model.heads.back().head, "fr-spec:v=4");
    EXPECT_FALSE(model.heads.back().is_dynamic);
    EXPECT_EQ(model.ranking_heads, "fr-spec");
    for (const HeadMark& head : model.heads) EXPECT_EQ(head.estimate, head.head == "coral");
    ASSERT_EQ(model.rounds.size(), 3u);
    const RoundCoverage& microspec = model.rounds[1];
    EXPECT_EQ(microspec.label, "microspec");
    // Means of 16 rounds: the last rounds are fully covered, the first not at all.
    EXPECT_DOUBLE_EQ(microspec.round.front(), coverage_window);
    EXPECT_DOUBLE_EQ(microspec.coverage.front(), 0);
    EXPECT_DOUBLE_EQ(microspec.coverage.back(), 1);
    // Two distinct tokens were emitted: the best ranking covers them with two tokens.
    EXPECT_DOUBLE_EQ(model.best.points.front().coverage, 60.0 / 80);
    EXPECT_DOUBLE_EQ(model.best.points.back().coverage, 1);
}

TEST(Coverage, ExplainsWhatIsMissing) {
    EXPECT_THAT(build_coverage(Snapshot(), CoverageIndex(), std::nullopt).empty_text,
                HasSubstr("No run yet"));
    CaptureBuilder built(vocabulary(numbered_words(4), false));
    built.prompt();
    EXPECT_THAT(make_model(built).empty_text, HasSubstr("No round has emitted"));
    RoundRecord round;
    round.tokens = {token(1, 1)};
    built.step(0, 10, {}, round);
    EXPECT_THAT(make_model(built).ranking_text, HasSubstr("No token ranking"));
}

TEST(Coverage, ShortlistSizesAreDistinctAndReachTheVocabulary) {
    EXPECT_THAT(log_sizes(1, 50), ::testing::ElementsAre(1));
    const std::vector<int> sizes = log_sizes(49152, 160);
    EXPECT_EQ(sizes.front(), 1);
    EXPECT_EQ(sizes.back(), 49152);
    EXPECT_TRUE(std::adjacent_find(sizes.begin(), sizes.end(), std::greater_equal<>()) == sizes.end());
}

}  // namespace
}  // namespace draftscope
