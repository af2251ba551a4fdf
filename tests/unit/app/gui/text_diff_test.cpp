#include "app/gui/models/text_diff.h"

#include <gtest/gtest.h>

#include <initializer_list>

#include "tests/support/capture_builder.h"

namespace draftscope {
namespace {

using testing::CaptureBuilder;

/// Spells a diff: " a" kept, "-a" only in A, "+a" only in B.
std::string spelled(const std::string& a, const std::string& b) {
    const std::vector<TokenId> of_a(a.begin(), a.end()), of_b(b.begin(), b.end());
    std::string out;
    for (const DiffToken& token : diff_tokens(of_a, of_b)) {
        const bool in_b = token.side == DiffSide::only_b;
        out += in_b ? '+' : token.side == DiffSide::only_a ? '-' : ' ';
        out += (in_b ? b : a)[token.index];
    }
    return out;
}

TEST(DiffTokens, KeepsTheLongestCommonText) {
    EXPECT_EQ(spelled("", ""), "");
    EXPECT_EQ(spelled("abc", "abc"), " a b c");
    EXPECT_EQ(spelled("abc", "axc"), " a-b+x c") << "a substitution: A first";
    EXPECT_EQ(spelled("abc", "ab"), " a b-c") << "B ended earlier";
    EXPECT_EQ(spelled("", "ab"), "+a+b");
    EXPECT_EQ(spelled("abab", "ab"), " a b-a-b") << "what both begin with is kept";
    EXPECT_EQ(spelled("xabcy", "abcdy"), "-x a b c+d y");
    EXPECT_EQ(spelled("abcbdab", "bdcaba").size(), 2u * (7 + 6 - 4)) << "four tokens in common";
}

TEST(DiffTokens, LongChangedPartsAreNotSearched) {
    const std::vector<TokenId> a(2500, 1), b(2600, 2);
    const auto diff = diff_tokens(a, b);
    ASSERT_EQ(diff.size(), 5100u);
    EXPECT_EQ(diff[2499], (DiffToken{DiffSide::only_a, 2499}));
    EXPECT_EQ(diff[2500], (DiffToken{DiffSide::only_b, 0}));
}

/// A run of one prompt for each text; a round commits two tokens. The tokens are letters.
Snapshot run_of(std::initializer_list<std::pair<const char*, const char*>> prompts) {
    std::vector<std::string> letters;
    for (char c = 'a'; c <= 'z'; ++c) letters.emplace_back(1, c);
    CaptureBuilder capture(testing::vocabulary(letters));
    TimeNs now = 0;
    for (const auto& [id, text] : prompts) {
        PromptRow row;
        row.external_id = row.text = id;
        capture.prompt(row);
        const std::string output = text;
        for (std::size_t at = 0; at < output.size(); at += 2) {
            RoundRecord round = testing::round_of(2);
            for (std::size_t i = at; i < std::min(at + 2, output.size()); ++i) {
                round.tokens.push_back(testing::token(output[i] - 'a', static_cast<int>(i - at) + 1));
                round.tokens.back().position = static_cast<int>(i);
            }
            capture.step(now, now + 10, {}, round);
            now += 10;
        }
    }
    return capture.snapshot();
}

TEST(RunDiff, FindsWhereOutputsPart) {
    const Snapshot a = run_of({{"same", "abcd"}, {"other", "abcd"}, {"longer", "abcd"}, {"lone", "ab"}});
    const Snapshot b = run_of({{"longer", "ab"}, {"same", "abcd"}, {"other", "abxd"}});
    const RunDiff diff = diff_runs(a, 1, b, 1);
    ASSERT_EQ(diff.prompts.size(), 3u);
    EXPECT_EQ(diff.headline, "the outputs of 2 of 3 prompts differ; only in A: 1");
    EXPECT_EQ(diff.prompts[0].first, std::nullopt);
    EXPECT_EQ(diff.prompts[1].first, 2);
    EXPECT_EQ(diff.prompts[2].first, 2) << "B ended earlier";
    EXPECT_EQ(diff.prompts[2].prompt_b, 1);
    const auto groups = diff_texts(a, b, diff.prompts[1]);
    ASSERT_EQ(groups.size(), 4u);
    EXPECT_EQ(groups[0].text + groups[1].text + groups[2].text + groups[3].text, "ab[-c-]{+x+}d");
    EXPECT_EQ(groups[3].position_a, 3);
    EXPECT_EQ(groups[3].position_b, 3);
    EXPECT_EQ(diff_runs(a, 1, run_of({{"same", "abcd"}}), 1).headline,
              "the outputs of 1 prompt agree; only in A: 3");
}

TEST(RunDiff, FindsTheRoundOfAPlaceInTheText) {
    const Snapshot a = run_of({{"one", "abcd"}, {"two", "abcdef"}});
    EXPECT_EQ(first_position(a, a.rounds[3].row.id), 2);
    EXPECT_EQ(first_position(a, 99), std::nullopt);
    EXPECT_EQ(round_at_position(a, 2, 2), 3u);
    EXPECT_EQ(round_at_position(a, 2, 3), 3u);
    EXPECT_EQ(round_at_position(a, 1, 0), 0u);
    EXPECT_EQ(round_at_position(a, 1, 4), std::nullopt) << "the text ends before";
}

}  // namespace
}  // namespace draftscope
