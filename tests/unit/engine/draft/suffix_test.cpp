#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

#include "engine/draft/registry.h"
#include "engine/draft/suffix_trie.h"
#include "tests/support/results.h"
#include "tests/support/tiny_model.h"

namespace draftscope {
namespace {

using Tokens = std::vector<TokenId>;

/// The number of places in the texts at which the string starts.
int count_places(const std::vector<Tokens>& texts, const Tokens& string) {
    int places = 0;
    for (const Tokens& text : texts)
        for (std::size_t at = 0; at + string.size() <= text.size(); ++at)
            places += std::equal(string.begin(), string.end(), text.begin() + at) ? 1 : 0;
    return places;
}

Tokens random_text(std::mt19937& random, int tokens, int vocab) {
    Tokens text(tokens);
    for (TokenId& token : text) token = static_cast<TokenId>(random() % vocab);
    return text;
}

TEST(SuffixTrie, CountsEveryStringAsASearchDoes) {
    std::mt19937 random(5);
    constexpr int depth = 5, vocab = 3;
    SuffixTrie trie(depth, 4);  // grows
    std::vector<Tokens> texts;
    for (int t = 0; t < 6; ++t) {
        texts.push_back(random_text(random, 40, vocab));
        SuffixTrie::Ends ends;
        for (const TokenId token : texts.back()) trie.append(ends, token);
        if (t == 3) {
            trie.remove(texts.front());
            texts.erase(texts.begin());
        }
        for (const Tokens& text : texts)
            for (int first = 0; first < 30; ++first)
                for (int size = 1; size <= depth; ++size) {
                    const Tokens string(text.begin() + first, text.begin() + first + size);
                    const int node = trie.find(string);
                    ASSERT_GE(node, 0);
                    ASSERT_EQ(trie.count(node), count_places(texts, string));
                }
    }
}

TEST(SuffixTrie, ListsChildrenByFallingCount) {
    std::mt19937 random(6);
    SuffixTrie trie(3, 8);
    const Tokens text = random_text(random, 300, 6);
    SuffixTrie::Ends ends;
    for (const TokenId token : text) trie.append(ends, token);
    for (TokenId token = 0; token < 6; ++token) {
        const int node = trie.find(Tokens{token});
        int children = 0, previous = 1 << 30;
        for (int child = trie.first_child(node); child >= 0; child = trie.next_sibling(child), ++children) {
            EXPECT_LE(trie.count(child), previous);
            previous = trie.count(child);
            EXPECT_EQ(trie.child(node, trie.token(child)), child);
        }
        EXPECT_EQ(children, 6);
    }
}

TEST(SuffixTrie, KeepsEqualCountsInTheOrderInWhichTheyCame) {
    SuffixTrie trie(2, 8);
    SuffixTrie::Ends ends;
    const auto followers = [&] {
        Tokens found;
        for (int child = trie.first_child(trie.find(Tokens{9})); child >= 0; child = trie.next_sibling(child))
            found.push_back(trie.token(child));
        return found;
    };
    for (const TokenId token : {9, 1, 9, 2, 9, 3}) trie.append(ends, token);
    EXPECT_EQ(followers(), (Tokens{1, 2, 3}));
    for (const TokenId token : {9, 3}) trie.append(ends, token);
    EXPECT_EQ(followers(), (Tokens{3, 1, 2}));  // passes its equals
    for (const TokenId token : {9, 2}) trie.append(ends, token);
    EXPECT_EQ(followers(), (Tokens{3, 2, 1}));  // and becomes the last of those with two
    for (const TokenId token : {9, 1}) trie.append(ends, token);
    EXPECT_EQ(followers(), (Tokens{1, 3, 2}));  // the first of those with one, alone behind those with two
}

class SuffixTest : public ::testing::Test {
  protected:
    std::unique_ptr<Drafter> make(const std::string& spec) {
        auto drafter = make_drafter(spec, "", *target_, *exec_);
        EXPECT_TRUE(drafter.ok()) << (drafter.ok() ? "" : drafter.error().message);
        return std::move(drafter).value();
    }
    DraftTree draft(Drafter& drafter, DrafterState& state, const Tokens& tokens, TreeSpec spec) {
        DraftContext context{*exec_, phases_, nullptr, spec, nullptr};
        DraftJob job;
        job.tokens = tokens;
        job.state = &state;
        job.tree = spec;
        EXPECT_TRUE(DraftRunner(drafter).draft(context, {&job, 1}).ok());
        return std::move(job.out);
    }
    Tokens chain(const std::string& spec, const Tokens& tokens, int length = 8) {
        const auto drafter = make(spec);
        const DraftTree tree = draft(*drafter, *drafter->make_state(256), tokens, chain_of(length));
        return {tree.tokens.begin() + 1, tree.tokens.end()};
    }
    static TreeSpec chain_of(int length) { return {length - 1, 1, length + 1}; }

    std::unique_ptr<kernels::Backend> exec_ = kernels::make_cpu_backend(1);
    std::unique_ptr<Target> target_ =
        std::move(Target::build(testing::make_tiny_model(1), *exec_, kernels::Precision::f32)).value();
    PhaseRecorder phases_;
};

TEST_F(SuffixTest, DraftsAsManyTokensAsTheMatchHas) {
    // "1 2 3" occurred before with one continuation; the end of the text itself counts as one more place.
    const Tokens text{1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3};
    EXPECT_EQ(chain("suffix", text), (Tokens{4, 5, 6}));
    EXPECT_EQ(chain("suffix:factor=2", text), (Tokens{4, 5, 6, 7, 8, 1}));
    EXPECT_EQ(chain("suffix:offset=1", text), (Tokens{4, 5, 6, 7}));
    EXPECT_EQ(chain("suffix:depth=3", text), (Tokens{4}));  // it knows no longer strings
    EXPECT_EQ(chain("suffix", text, 2), (Tokens{4, 5}));
}

TEST_F(SuffixTest, TakesTheCommonestContinuation) {
    EXPECT_EQ(chain("suffix:offset=4", {7, 1, 7, 2, 7, 2, 7}), (Tokens{2, 7, 2, 7}));
    EXPECT_TRUE(chain("suffix:min_prob=0.6", {7, 1, 7, 2, 7, 2, 7}).empty());
    EXPECT_TRUE(chain("suffix", {1, 2, 3, 4}).empty());
    EXPECT_TRUE(chain("suffix", {1}).empty());
}

/// Every draft is a continuation of some match with the most places at each step, by counting substrings.
TEST_F(SuffixTest, DraftsCommonestContinuationsByCounting) {
    std::mt19937 random(11);
    constexpr int depth = 6, length = 5, vocab = 3;
    int drafted = 0;
    for (int round = 0; round < 200; ++round) {
        const Tokens text = random_text(random, 30 + round % 17, vocab);
        const auto drafter = make("suffix:depth=6");
        const DraftTree tree = draft(*drafter, *drafter->make_state(64), text, chain_of(length));
        drafted += tree.size() - 1;
        const auto follows = [&](int matched) {
            Tokens string(text.end() - matched, text.end());
            double prob = 1;
            for (int i = 1; i < tree.size(); ++i) {
                const int places = count_places({text}, string);
                int highest = 0;
                for (TokenId token = 0; token < vocab; ++token) {
                    string.push_back(token);
                    highest = std::max(highest, count_places({text}, string));
                    string.pop_back();
                }
                string.push_back(tree.tokens[i]);
                if (count_places({text}, string) != highest) return false;
                prob *= static_cast<double>(highest) / places;
                if (std::abs(prob - std::exp(tree.cum_logprobs[i])) > 1e-5) return false;
            }
            return tree.size() - 1 <= std::min(matched, length);
        };
        bool found = tree.size() == 1;
        for (int matched = 1; matched < depth && !found; ++matched) found = follows(matched);
        EXPECT_TRUE(found) << "round " << round;
    }
    EXPECT_GT(drafted, 100);
}

TEST_F(SuffixTest, DraftsTreesByPathProbability) {
    const auto drafter = make("suffix:offset=8");
    // After 7: twice 2, once 1, once the end.
    const DraftTree tree = draft(*drafter, *drafter->make_state(64), {7, 1, 7, 2, 7, 2, 7}, {1, 2, 4});
    ASSERT_EQ(tree.size(), 4);
    EXPECT_EQ(tree.tokens[1], 2);
    EXPECT_EQ(tree.parents[1], 0);
    EXPECT_NEAR(std::exp(tree.cum_logprobs[1]), 0.5, 1e-6);
    for (int i = 2; i < tree.size(); ++i) EXPECT_LE(tree.cum_logprobs[i], tree.cum_logprobs[i - 1] + 1e-6);
    EXPECT_LE(tree.max_depth(), 2);
}

TEST_F(SuffixTest, ContinuesWithAGrowingTextAsWithAWholeOne) {
    std::mt19937 random(3);
    const Tokens text = random_text(random, 120, 4);
    const auto drafter = make("suffix");
    const auto growing = drafter->make_state(16);
    for (std::size_t size = 1; size <= text.size(); size += 1 + size % 3) {
        const Tokens so_far(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(size));
        const DraftTree grown = draft(*drafter, *growing, so_far, chain_of(6));
        const DraftTree whole = draft(*drafter, *drafter->make_state(256), so_far, chain_of(6));
        ASSERT_EQ(grown.tokens, whole.tokens);
    }
    // A shorter text begins again.
    const Tokens part(text.begin(), text.begin() + 30);
    EXPECT_EQ(draft(*drafter, *growing, part, chain_of(6)).tokens,
              draft(*drafter, *drafter->make_state(256), part, chain_of(6)).tokens);
}

TEST_F(SuffixTest, SearchesEarlierAnswersIfRequested) {
    for (const bool requested : {false, true}) {
        const auto drafter = make(requested ? "suffix:answers=4" : "suffix");
        EXPECT_EQ(drafter->properties().order_matters, requested);
        drafter->begin_run();
        const auto first = drafter->make_state(64);
        (void)draft(*drafter, *first, {50, 1}, chain_of(4));  // the prompt is 50
        (void)draft(*drafter, *first, {50, 1, 2, 3, 4, 5, 6}, chain_of(4));
        const auto second = drafter->make_state(64);
        const DraftTree tree = draft(*drafter, *second, {60, 1, 2, 3}, chain_of(4));
        EXPECT_EQ(Tokens(tree.tokens.begin() + 1, tree.tokens.end()),
                  requested ? (Tokens{4, 5, 6}) : Tokens());
        drafter->begin_run();
        EXPECT_EQ(draft(*drafter, *drafter->make_state(64), {60, 1, 2, 3}, chain_of(4)).size(), 1);
    }
}

TEST_F(SuffixTest, RefusesWhatItDoesNotKnow) {
    const auto message = [&](const char* spec) {
        const auto drafter = make_drafter(spec, "", *target_, *exec_);
        return drafter.ok() ? std::string() : drafter.error().message;
    };
    EXPECT_EQ(message("suffix:depth=1"), "drafter 'suffix': depth=1 is not a whole number in 2..64");
    EXPECT_EQ(message("suffix:min_prob=x"), "drafter 'suffix': min_prob=x is not a number in 0..1");
    EXPECT_EQ(message("suffix:deep=1"),
              "drafter 'suffix' has no parameter 'deep'; it has depth, factor, offset, min_prob and answers");
}

}  // namespace
}  // namespace draftscope
