#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "engine/draft/registry.h"
#include "tests/support/results.h"
#include "tests/support/tiny_model.h"

namespace draftscope {
namespace {

using Tokens = std::vector<TokenId>;

class NgramTest : public ::testing::Test {
  protected:
    std::unique_ptr<Drafter> make(const std::string& spec) {
        auto drafter = make_drafter(spec, "", *target_, *exec_);
        EXPECT_TRUE(drafter.ok()) << (drafter.ok() ? "" : drafter.error().message);
        return std::move(drafter).value();
    }

    /// Returns the chain drafted after `tokens` by a state that has indexed everything before.
    Tokens draft(Drafter& drafter, DrafterState& state, const Tokens& tokens, TreeSpec spec = {3, 4, 12}) {
        DraftContext context{*exec_, phases_, nullptr, spec, nullptr};
        DraftJob job;
        job.tokens = tokens;
        job.state = &state;
        job.tree = spec;
        EXPECT_TRUE(DraftRunner(drafter).draft(context, {&job, 1}).ok());
        EXPECT_EQ(job.out.tokens[0], tokens.back());
        for (int i = 0; i < job.out.size(); ++i) {
            EXPECT_EQ(job.out.parents[i], i - 1);
        }
        EXPECT_EQ(job.out.mask.nodes(), job.out.size());
        EXPECT_TRUE(job.rows_per_call.empty());
        return {job.out.tokens.begin() + 1, job.out.tokens.end()};
    }
    Tokens draft(const std::string& spec, const Tokens& tokens, TreeSpec tree = {3, 4, 12}) {
        const auto drafter = make(spec);
        return draft(*drafter, *drafter->make_state(256), tokens, tree);
    }

    std::unique_ptr<kernels::Backend> exec_ = kernels::make_cpu_backend(1);
    std::unique_ptr<Target> target_ =
        std::move(Target::build(testing::make_tiny_model(1), *exec_, kernels::Precision::f32)).value();
    PhaseRecorder phases_;
};

TEST_F(NgramTest, CopiesWhatFollowedTheSameWords) {
    EXPECT_EQ(draft("ngram", {1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3}), (Tokens{4, 5, 6, 7}));
}

TEST_F(NgramTest, PrefersTheLongestMatchOverTheLatest) {
    // "2 3" was last followed by 9, but "1 2 3" by 4.
    EXPECT_EQ(draft("ngram", {1, 2, 3, 4, 5, 2, 3, 9, 9, 1, 2, 3}, {0, 1, 2}), (Tokens{4}));
    EXPECT_EQ(draft("ngram:max=2", {1, 2, 3, 4, 5, 2, 3, 9, 9, 1, 2, 3}, {0, 1, 2}), (Tokens{9}));
}

TEST_F(NgramTest, PrefersTheLatestOfEquals) {
    EXPECT_EQ(draft("ngram", {7, 1, 7, 2, 7}, {0, 1, 2}), (Tokens{2}));
}

TEST_F(NgramTest, DraftsNothingWithoutAMatch) {
    EXPECT_TRUE(draft("ngram", {1, 2, 3, 4}).empty());
    EXPECT_TRUE(draft("ngram", {1}).empty());
    EXPECT_TRUE(draft("ngram:min=2", {1, 2, 3, 2}).empty());
}

TEST_F(NgramTest, ContinuesARepetitionBeyondTheText) {
    EXPECT_EQ(draft("ngram", {5, 6, 5, 6, 5, 6}, {4, 1, 6}), (Tokens{5, 6, 5, 6, 5}));
    EXPECT_EQ(draft("ngram", {8, 8}, {3, 1, 5}), (Tokens{8, 8, 8, 8}));
}

TEST_F(NgramTest, TakesTheEarliestMatchIfRequested) {
    EXPECT_EQ(draft("ngram:first=1", {7, 1, 7, 2, 7}, {0, 1, 2}), (Tokens{1}));
    EXPECT_EQ(draft("ngram:first=0", {7, 1, 7, 2, 7}, {0, 1, 2}), (Tokens{2}));
}

TEST_F(NgramTest, LimitsDrafts) {
    const Tokens text{1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3};
    EXPECT_EQ(draft("ngram:tokens=2", text, {7, 1, 9}), (Tokens{4, 5}));
    EXPECT_EQ(draft("ngram:least=4", text, {3, 1, 5}), (Tokens{4, 5, 6, 7}));
    EXPECT_TRUE(draft("ngram:least=5", text, {3, 1, 5}).empty());
    EXPECT_TRUE(draft("ngram:hits=2", text, {3, 1, 5}).empty());
    EXPECT_EQ(draft("ngram:hits=2,min=1,max=1", {3, 4, 3, 5, 3}, {0, 1, 2}), (Tokens{5}));
    EXPECT_EQ(draft("ngram:extend=0", {8, 8, 8}, {3, 1, 5}), (Tokens{8}));
}

/// The law of vLLM's n-gram proposer: the longest length first, then the earliest match, never past the text.
TEST_F(NgramTest, DraftsAsVllmDoes) {
    std::mt19937 random(9);
    for (int round = 0; round < 200; ++round) {
        Tokens text(12 + round % 20);
        for (TokenId& token : text) token = static_cast<TokenId>(random() % 3);
        const int size = static_cast<int>(text.size());
        Tokens expected;
        for (int n = 4; n >= 2 && expected.empty(); --n)
            for (int at = 0; at + n < size && expected.empty(); ++at)
                if (std::equal(text.begin() + at, text.begin() + at + n, text.end() - n))
                    expected.assign(text.begin() + at + n, text.begin() + std::min(at + n + 5, size));
        EXPECT_EQ(draft("ngram:vllm,min=2,max=4", text, {4, 1, 6}), expected);
    }
}

TEST_F(NgramTest, SearchesEarlierTextsOfTheRunIfRequested) {
    for (const bool requested : {false, true}) {
        const auto drafter = make(requested ? "ngram:pool=1" : "ngram");
        EXPECT_EQ(drafter->properties().order_matters, requested);
        drafter->begin_run();
        const auto first = drafter->make_state(64), second = drafter->make_state(64);
        (void)draft(*drafter, *first, {50, 1, 2, 3, 4});
        EXPECT_EQ(draft(*drafter, *second, {60, 1, 2}, {3, 1, 5}), requested ? (Tokens{3, 4}) : Tokens());
        drafter->begin_run();
        EXPECT_TRUE(draft(*drafter, *drafter->make_state(64), {60, 1, 2}).empty());
    }
}

TEST_F(NgramTest, SearchesOnlyWithinWindow) {
    // The 9 after (1, 2) is 6 tokens before the end of the text.
    const Tokens text{1, 2, 9, 4, 5, 6, 1, 2};
    EXPECT_EQ(draft("ngram:window=6", text, {0, 1, 2}), (Tokens{9}));
    EXPECT_TRUE(draft("ngram:window=5", text, {0, 1, 2}).empty());
}

TEST_F(NgramTest, WithoutBackoffOnlyTheLongestSuffixCounts) {
    const Tokens text{7, 2, 9, 4, 1, 2};
    EXPECT_EQ(draft("ngram:max=2", text, {0, 1, 2}), (Tokens{9}));
    EXPECT_TRUE(draft("ngram:max=2,backoff=0", text, {0, 1, 2}).empty());
    EXPECT_EQ(draft("ngram:max=1,backoff=0", text, {0, 1, 2}), (Tokens{9}));
}

TEST_F(NgramTest, DraftsAtMostTreeDepth) {
    const Tokens text{1, 2, 3, 4, 5, 6, 7, 1, 2};
    EXPECT_EQ(draft("ngram", text, {5, 1, 4}).size(), 3u);
    EXPECT_EQ(draft("ngram", text, {1, 10, 60}).size(), 2u);
    EXPECT_TRUE(draft("ngram", text, {5, 1, 1}).empty());
}

/// Reference by search: the latest earlier occurrence of the longest repeated suffix.
Tokens by_search(const Tokens& tokens, int max, int min, int drafts) {
    const int size = static_cast<int>(tokens.size());
    for (int n = std::min(max, size - 1); n >= min; --n) {
        for (int end = size - 1; end >= n; --end) {
            if (!std::equal(tokens.end() - n, tokens.end(), tokens.begin() + end - n)) continue;
            Tokens drafted, all = tokens;
            for (int i = 0; i < drafts; ++i) {
                drafted.push_back(all[end + i]);
                all.push_back(drafted.back());
            }
            return drafted;
        }
    }
    return {};
}

TEST_F(NgramTest, GrowingIndexAgreesWithSearch) {
    std::mt19937 rng(3);
    for (int text = 0; text < 20; ++text) {
        const auto drafter = make("ngram:max=4,min=1");
        // some texts exceed the state's initial size
        const auto state = drafter->make_state(text % 2 == 0 ? 256 : 4);
        Tokens tokens{static_cast<TokenId>(rng() % 3)};
        while (tokens.size() < 120) {
            for (unsigned grown = rng() % 5 + 1; grown > 0; --grown)
                tokens.push_back(static_cast<TokenId>(rng() % 4));
            ASSERT_EQ(draft(*drafter, *state, tokens), by_search(tokens, 4, 1, 4));
        }
    }
}

TEST_F(NgramTest, RebuildsIndexWhenTextIsShorter) {
    const auto drafter = make("ngram");
    const auto state = drafter->make_state(64);
    EXPECT_EQ(draft(*drafter, *state, {1, 2, 3, 1, 2}, {0, 1, 2}), (Tokens{3}));
    EXPECT_TRUE(draft(*drafter, *state, {1, 2}, {0, 1, 2}).empty());
}

TEST_F(NgramTest, NoneDraftsNothing) {
    EXPECT_TRUE(draft("none", {1, 2, 1, 2}).empty());
}

TEST_F(NgramTest, RegistryErrorsExplainInvalidDrafters) {
    const auto message = [&](const std::string& spec) {
        const auto drafter = make_drafter(spec, "", *target_, *exec_);
        EXPECT_FALSE(drafter.ok()) << spec;
        EXPECT_TRUE(drafter.ok() || drafter.error().kind == ErrorKind::bad_input);
        return drafter.ok() ? std::string() : drafter.error().message;
    };
    const std::string unknown = message("eagel:x");
    EXPECT_NE(unknown.find("'eagel'"), std::string::npos) << unknown;
    for (const DrafterInfo& info : drafter_registry()) {
        EXPECT_NE(unknown.find(info.id), std::string::npos) << unknown;
        EXPECT_EQ(find_drafter(info.id), &info);
        EXPECT_EQ(drafter_traits(std::string(info.id) + ":x").id, info.id);
        if (info.needs_weights) continue;
        EXPECT_FALSE(info.has_synthetic) << info.id;
        const auto drafter = require(make_drafter(info.id, "", *target_, *exec_));
        EXPECT_EQ(drafter->uses_head(), info.uses_head) << info.id;
    }
    EXPECT_TRUE(drafter_traits("eagel:x").id.empty());
    EXPECT_NE(message("eagle2").find("eagle2:FOLDER"), std::string::npos);
    EXPECT_NE(message("none:x").find("'x'"), std::string::npos);
    EXPECT_NE(message("ngram:deep=3")
                  .find("it has max, min, window, backoff, first, hits, extend, tokens, "
                        "least and pool"),
              std::string::npos);
    EXPECT_NE(message("ngram:max=0").find("1..32"), std::string::npos);
    EXPECT_NE(message("ngram:first=1,window=9").find("window=9"), std::string::npos);
    EXPECT_NE(message("ngram:max=two").find("max=two"), std::string::npos);
    EXPECT_NE(message("ngram:max=2,min=3").find("above"), std::string::npos);
    EXPECT_NE(message("ngram:window=-1").find("window=-1"), std::string::npos);
    EXPECT_NE(message("ngram:backoff=2").find("0..1"), std::string::npos);
}

}  // namespace
}  // namespace draftscope
