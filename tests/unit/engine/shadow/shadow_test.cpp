#include <gtest/gtest.h>

#include <map>

#include "base/rng.h"
#include "tests/support/head_specs.h"
#include "tests/support/tiny_artefacts.h"
#include "tests/support/tiny_decode.h"

/// Self-paced shadow heads give the same results next to another head as in a run of their own.
namespace draftscope::testing {
namespace {

std::vector<std::vector<TokenId>> prompts() {
    std::vector<std::vector<TokenId>> all = {{5}, {}, {1, 2, 3}};
    for (int i = 0; i < 24; ++i) all[1].push_back(i % 6);
    return all;
}

class Shadows : public ::testing::Test, protected TinyDecode {
  protected:
    static std::string text(const HeadEvalRow& row) {
        return fmt::format("accepted {} committed {} covered {} mass {} rows {} bytes {}", row.accepted,
                           row.committed, row.covered, row.covered_mass.value_or(-1), row.active_rows,
                           row.bytes);
    }
    /// Rows of the driving head, in order.
    std::vector<std::string> driven(const DecodeCase& setting,
                                    const std::vector<std::vector<TokenId>>& list) {
        RecordList records;
        fixture_.decode(setting, list, &records);
        std::vector<std::string> rows;
        for (const StepRecord& step : RecordList::of<StepRecord>(records.take()))
            for (const RoundRecord& round : step.rounds)
                for (const HeadEvalRow& row : round.head_evals) rows.push_back(text(row));
        return rows;
    }

    TinyArtefacts artefacts_{fixture_};
};

const std::vector<std::string> heads = specs_of_heads(
    {"fr-spec:v=6", "specvocab:k=4", "coral:active=2", "dynaspec:kmax=2", "microspec:wmax=9,branch=path"});

TEST_F(Shadows, MatchTheirOwnRuns) {
    for (const double temperature : {0.0, 1.0})
        for (const std::string tree : {"chain=3", "depth=3,topk=4,nodes=12"})
            for (const auto& prompt : prompts()) {
                DecodeCase setting{
                    .head = "fr-spec:v=3", .tree = tree, .temperature = temperature, .max_new = 30};
                const auto plain = fixture_.decode(setting, {prompt});
                DecodeCase shadowed = setting;
                shadowed.shadows = heads;
                RecordList records;
                const auto outcome = fixture_.decode(shadowed, {prompt}, &records);
                EXPECT_EQ(outcome[0].tokens, plain[0].tokens);
                std::map<std::string, std::vector<std::string>> found;
                const auto list = records.take();
                for (const HeadEvaluated& evaluated : RecordList::of<HeadEvaluated>(list)) {
                    const RowId last_round = evaluated.rows.front().round_id;
                    for (const HeadEvalRow& row : evaluated.rows) {
                        EXPECT_EQ(row.mode, HeadMode::selfpaced);
                        // The driving round whose tokens decided the tree.
                        EXPECT_GE(row.round_id, last_round);
                        if (row.round_id == 0) ADD_FAILURE() << "a row without its round";
                        found[row.head].push_back(text(row));
                    }
                }
                // Their time is part of no step.
                for (const StepRecord& step : RecordList::of<StepRecord>(list)) {
                    EXPECT_NE(step.step.excluded, Excluded::shadow);
                    for (const SpanRow& span : step.spans) EXPECT_LE(span.end_ns, step.step.end_ns);
                }
                for (const std::string& head : heads) {
                    DecodeCase alone = setting;
                    alone.head = head;
                    EXPECT_EQ(found[head], driven(alone, {prompt})) << head << " " << tree;
                }
            }
}

TEST_F(Shadows, FollowEverySequenceOfABatch) {
    DecodeCase setting{.head = "full", .batch = 3, .max_new = 24};
    setting.shadows = {"microspec:wmax=9,branch=path", "fr-spec:v=6"};
    RecordList records;
    fixture_.decode(setting, prompts(), &records);
    std::map<std::string, std::pair<int, int>> found;
    for (const HeadEvaluated& evaluated : RecordList::of<HeadEvaluated>(records.take()))
        for (const HeadEvalRow& row : evaluated.rows) {
            found[row.head].first += 1;
            found[row.head].second += row.committed;
        }
    for (const std::string& head : setting.shadows) {
        DecodeCase alone = setting;
        alone.head = head;
        alone.shadows.clear();
        std::pair<int, int> expected;
        for (const PromptOutcome& outcome : fixture_.decode(alone, prompts())) {
            expected.first += static_cast<int>(outcome.rounds);
            expected.second += static_cast<int>(outcome.committed);
        }
        EXPECT_EQ(found[head], expected) << head;
    }
}

/// A full head that waits for the end of each text finds what one finds that follows it step by step, if
/// there is time for it. Texts without calibration rounds give no forecast.
TEST_F(Shadows, TheFullHeadMayFollowTextsThatHaveEnded) {
    for (const double temperature : {0.0, 1.0}) {
        DecodeCase setting{.head = "fr-spec:v=3", .temperature = temperature, .max_new = 30};
        const auto rows = [&](const DecodeCase& one, HeadMode mode) {
            RecordList records;
            fixture_.decode(one, prompts(), &records);
            const auto list = records.take();
            const RowId first = RecordList::of<StepRecord>(list).front().rounds.front().round.id;
            std::vector<std::string> out;
            for (const HeadEvaluated& evaluated : RecordList::of<HeadEvaluated>(list))
                for (const HeadEvalRow& row : evaluated.rows)
                    if (row.mode == mode)
                        out.push_back(fmt::format("{} {} {}", row.head, row.round_id - first, text(row)));
            return out;
        };
        setting.shadows = {"full"};
        const auto expected = rows(setting, HeadMode::selfpaced);
        ASSERT_GT(expected.size(), 10u);
        setting.shadows.clear();
        setting.calibration_rounds = 2;
        setting.full_shadow_ns = 1000 * ns_per_s;
        EXPECT_EQ(rows(setting, HeadMode::selfpaced), expected);
        EXPECT_FALSE(rows(setting, HeadMode::calibration).empty());
        setting.full_shadow_ns = 1;
        EXPECT_TRUE(rows(setting, HeadMode::selfpaced).empty());
        setting.full_shadow_ns = 1000 * ns_per_s;
        setting.calibration_rounds = 0;
        EXPECT_TRUE(rows(setting, HeadMode::selfpaced).empty());
        setting.calibration_rounds = 2;
        setting.head = "full";
        EXPECT_TRUE(rows(setting, HeadMode::selfpaced).empty());
    }
}

/// Cancels the run when its first text has all of its tokens.
class CancelAtTheEnd : public RecordList {
  public:
    CancelAtTheEnd(DebugGate& gate, int tokens) : gate_(gate), left_(tokens) {}
    void push(Record record) override {
        if (const auto* step = std::get_if<StepRecord>(&record))
            if ((left_ -= step->rounds.front().round.committed) <= 0) gate_.cancel();
        RecordList::push(std::move(record));
    }

  private:
    DebugGate& gate_;
    int left_;
};

TEST_F(Shadows, ACancelledRunHasNoTextFollowedInPart) {
    const DecodeCase setting{.head = "fr-spec:v=3",
                             .max_new = 30,
                             .ignore_eos = true,
                             .calibration_rounds = 2,
                             .full_shadow_ns = 1000 * ns_per_s};
    CancelAtTheEnd records(fixture_.gate(), setting.max_new - 1);
    const auto outcomes = fixture_.decode(setting, {{5}}, &records);
    fixture_.gate().reset();
    EXPECT_EQ(outcomes[0].finish, Finish::length);
    for (const HeadEvaluated& evaluated : RecordList::of<HeadEvaluated>(records.take()))
        for (const HeadEvalRow& row : evaluated.rows) EXPECT_EQ(row.mode, HeadMode::calibration);
}

/// An aligned copy of the driving head drafts the same trees, so it is evaluated like the rounds themselves.
/// Heads with another state or shortlist draft from the driving head's positions.
TEST_F(Shadows, AlignedHeadsDraftInTheDrivingRounds) {
    for (const std::string head : {"full", "fr-spec:v=6", "specvocab:k=4"})
        for (const int batch : {1, 3}) {
            DecodeCase setting{.head = head,
                               .tree = "depth=3,topk=4,nodes=12",
                               .batch = batch,
                               .max_new = 30,
                               .warmup_steps = 2};
            const auto plain = fixture_.decode(setting, prompts());
            setting.shadows = {"aligned:" + head, "aligned:microspec:wmax=9,branch=path",
                               "aligned:dynaspec:kmax=2"};
            RecordList records;
            const auto outcomes = fixture_.decode(setting, prompts(), &records);
            for (std::size_t p = 0; p < plain.size(); ++p) EXPECT_EQ(outcomes[p].tokens, plain[p].tokens);
            const auto list = records.take();
            std::map<RowId, const HeadEvalRow*> driven;
            std::size_t rounds = 0;
            const auto steps = RecordList::of<StepRecord>(list);
            for (const StepRecord& step : steps) {
                EXPECT_EQ(step.step.excluded, step.step.ordinal < 2 ? Excluded::warmup : Excluded::no);
                for (const SpanRow& span : step.spans) EXPECT_LE(span.end_ns, step.step.end_ns);
                for (const RoundRecord& round : step.rounds) {
                    ++rounds;
                    ASSERT_EQ(round.head_evals.size(), 1u);
                    driven[round.round.id] = &round.head_evals.front();
                }
            }
            std::map<std::string, std::size_t> rows;
            for (const HeadEvaluated& evaluated : RecordList::of<HeadEvaluated>(list))
                for (const HeadEvalRow& row : evaluated.rows) {
                    EXPECT_EQ(row.mode, HeadMode::aligned);
                    EXPECT_GT(row.covered_mass.value_or(0), 0);
                    ++rows[row.head];
                    if (row.head != head) continue;
                    const HeadEvalRow& own = *driven[row.round_id];
                    EXPECT_EQ(row.accepted, own.accepted);
                    EXPECT_EQ(row.committed, own.committed);
                    EXPECT_EQ(row.covered, own.covered);
                    EXPECT_NEAR(*row.covered_mass, *own.covered_mass, 1e-12);
                    EXPECT_EQ(row.active_rows, own.active_rows);
                }
            ASSERT_EQ(rows.size(), 3u);
            EXPECT_EQ(rows[head], rounds) << "in every round";
            EXPECT_EQ(rows["microspec:wmax=9,branch=path"], rows[head]);
        }
}

}  // namespace
}  // namespace draftscope::testing
