#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "tests/support/tiny_decode.h"

/// Rounds of two drafters on a random model.
namespace draftscope::testing {
namespace {

/// Texts that repeat themselves, so that both drafters get their turn.
std::vector<std::vector<TokenId>> repeating_prompts() {
    std::vector<std::vector<TokenId>> all = varied_prompts();
    std::vector<TokenId>& long_one = all.emplace_back();
    for (int i = 0; i < 60; ++i) long_one.push_back(i % 12);
    return all;
}

class Pairs : public ::testing::Test, protected TinyDecode {
  protected:
    Pairs() = default;

    std::vector<PromptOutcome> plain(double temperature = 0) {
        return fixture_.decode(
            {.drafter = "none", .tree = "chain=1", .temperature = temperature, .max_new = max_new},
            repeating_prompts());
    }
    /// Counts the rounds of each drafter, and the steps in which both drafted.
    void count(const DecodeCase& setting, std::map<std::string, int>& rounds, int& shared_steps) {
        RecordList records;
        fixture_.decode(setting, repeating_prompts(), &records);
        const auto list = records.take();
        for (const StepRecord& step : RecordList::of<StepRecord>(list)) {
            std::set<std::string> drafters;
            for (const RoundRecord& round : step.rounds) {
                ++rounds[round.round.drafter];
                drafters.insert(round.round.drafter);
            }
            shared_steps += drafters.size() > 1 ? 1 : 0;
        }
    }
    static constexpr int max_new = 60;
};

const std::vector<std::string> others = {"eagle2", "eagle3", "draft-model", "medusa", "hydra"};

TEST_F(Pairs, TextsAreThoseOfPlainDecoding) {
    for (const double temperature : {0.0, 0.8}) {
        const auto expected = plain(temperature);
        for (const std::string text : {"suffix", "ngram:min=2"})
            for (const std::string& other : others)
                for (const std::string tree :
                     {"chain=2", "depth=1,topk=3,nodes=6", "adaptive:exllama,max=4,skip=0.9"})
                    for (const int batch : {1, 3}) {
                        const DecodeCase setting{.drafter = "pair:" + text + "+" + other,
                                                 .tree = tree,
                                                 .temperature = temperature,
                                                 .batch = batch,
                                                 .max_new = max_new};
                        expect_same_texts(fixture_.decode(setting, repeating_prompts()), expected, setting);
                    }
    }
}

TEST_F(Pairs, BothDraftInOneStep) {
    for (const std::string& other : others) {
        std::map<std::string, int> rounds;
        int shared_steps = 0;
        count({.drafter = "pair:suffix+" + other, .tree = "chain=2", .batch = 4, .max_new = max_new}, rounds,
              shared_steps);
        EXPECT_GT(rounds["suffix"], 5) << other;
        EXPECT_GT(rounds[other], 5) << other;
        EXPECT_EQ(rounds.size(), 2u) << other;
        EXPECT_GT(shared_steps, 5) << other;
    }
}

TEST_F(Pairs, RejectionSamplingDoesNotDependOnTheBatch) {
    for (const std::string& other : others)
        for (const std::string tree : {"chain=2", "depth=1,topk=3,nodes=6"}) {
            DecodeCase setting{.drafter = "pair:suffix+" + other,
                               .tree = tree,
                               .temperature = 0.6,
                               .verify = "pq",
                               .max_new = max_new};
            const auto alone = fixture_.decode(setting, repeating_prompts());
            setting.batch = 4;
            expect_same_texts(fixture_.decode(setting, repeating_prompts()), alone, setting);
        }
}

/// A drafter's rounds in a pair are those that it drafts alone after the same text: it misses no slot while
/// the text drafter drafts.
TEST_F(Pairs, TheOtherCatchesUpWhileTheTextDrafts) {
    for (const std::string& other : others) {
        const auto drafts = [&](const std::string& drafter) {
            RecordList records;
            fixture_.decode({.drafter = drafter, .tree = "depth=1,topk=3,nodes=6", .max_new = max_new},
                            repeating_prompts(), &records);
            std::map<std::pair<RowId, int>, std::vector<TokenId>> by_place;
            const auto list = records.take();
            RowId first_prompt = 0;
            for (const StepRecord& step : RecordList::of<StepRecord>(list))
                for (const RoundRecord& round : step.rounds) {
                    if (first_prompt == 0) first_prompt = round.round.prompt_id;
                    if (round.round.drafter == "suffix") continue;
                    auto& tokens =
                        by_place[{round.round.prompt_id - first_prompt, round.round.context_length}];
                    for (const NodeRow& node : round.nodes) tokens.push_back(node.token_id);
                }
            return by_place;
        };
        const auto alone = drafts(other), paired = drafts("pair:suffix+" + other);
        int compared = 0;
        for (const auto& [place, tokens] : paired) {
            const auto found = alone.find(place);
            if (found == alone.end()) continue;
            EXPECT_EQ(found->second, tokens) << other << " prompt " << place.first << " at " << place.second;
            ++compared;
        }
        EXPECT_GT(compared, 20) << other;
        EXPECT_LT(compared, static_cast<int>(alone.size())) << other;
    }
}

}  // namespace
}  // namespace draftscope::testing
