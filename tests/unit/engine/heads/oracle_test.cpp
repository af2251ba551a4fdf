#include "engine/heads/oracle.h"

#include "tests/support/lm_head_fixture.h"

namespace draftscope::testing {
namespace {

class Oracle : public LmHeadFixture {};

TEST_F(Oracle, ProposesTargetsBestTokensOfEachPosition) {
    const auto head = make("oracle:m=3");
    const auto a = head->begin_prompt({}, {}), b = head->begin_prompt({}, {});
    const std::vector<TokenId> first = {9, 40, 41, 7, 8, 1, 2, 3}, second = {100, 9, 100, 3};
    set_future_tokens(*a, Rows<const TokenId>(first.data(), 2, 4));
    set_future_tokens(*b, Rows<const TokenId>(second.data(), 1, 4));
    const auto logits = dense();
    const Proposal found = propose(*head, 0, 5, {a.get(), a.get(), b.get(), b.get(), a.get()});
    for (const int r : {0, 1, 4}) expect_row(found, r, logits[r], {9, 40, 41});
    for (const int r : {2, 3}) expect_row(found, r, logits[r], {9, 100});
    expect_row(propose(*head, input().slice(0, 1), 1, 5, {a.get()}), 0, logits[0], {1, 2, 8});
    EXPECT_EQ(covered(*head, 1, a.get()), (std::vector<TokenId>{1, 2, 8}));
    // Past the end of the text no token is known or proposed.
    EXPECT_EQ(propose(*head, input().slice(0, 1), 2, 5, {a.get()}).counts, std::vector<int>{0});
    EXPECT_TRUE(covered(*head, 1, b.get()).empty());
    EXPECT_EQ(head->cost_at(b.get(), 1, 0).active_rows, 2);
    EXPECT_EQ(head->cost(1).active_rows, 3);
}

TEST_F(Oracle, SkipsDuplicateAndInvalidIds) {
    const auto head = make("oracle:m=8");
    const auto state = head->begin_prompt({}, {});
    const std::vector<TokenId> best = {9, 9, vocab, 5000, -1, 3, 9, 41};
    set_future_tokens(*state, Rows<const TokenId>(best.data(), 1, 8));
    const auto logits = dense();
    const Proposal found = propose(*head, 0, 5, std::vector<HeadState*>(rows, state.get()));
    for (int r = 0; r < rows; ++r) expect_row(found, r, logits[r], {3, 9, 41});
}

TEST_F(Oracle, ProposesNothingWithoutFutureTokens) {
    const auto head = make("oracle");
    const auto state = head->begin_prompt({}, {});
    EXPECT_EQ(propose(*head, 0, 5, std::vector<HeadState*>(rows, state.get())).counts,
              std::vector<int>(rows, 0));
}

}  // namespace
}  // namespace draftscope::testing
