#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "kernels/host_rows.h"
#include "tests/support/lm_head_fixture.h"

namespace draftscope::testing {
namespace {

class SpecVocab : public LmHeadFixture {
  protected:
    static constexpr int rank = 8;
    const std::vector<float> down_ = random(rank * hidden, 1), table_ = random(vocab * rank, 2);

    void SetUp() override {
        Tensors tensors;
        tensors.floats("down", {rank, hidden}, down_);
        tensors.floats("vocab", {vocab, rank}, table_);
        ArtefactInfo info = LmHeadFixture::info("specvocab");
        info.parameters = {{"rank", "8"}};
        save(info, tensors);
    }
    /// Returns the k tokens with the largest approximate logits of each row, ascending.
    std::vector<std::vector<TokenId>> expected(int k) {
        const auto pack = [&](const std::vector<float>& values, int n, int columns) {
            return kernels::Matrix::pack(*exec_, matrix_.precision(), n, columns, [&](int row, float* out) {
                std::copy_n(values.begin() + std::ptrdiff_t{row} * columns, columns, out);
            });
        };
        std::vector<float> narrow(rows * rank), wide(static_cast<std::size_t>(rows * vocab));
        kernels::matmul(exec_->pool(), pack(down_, rank, hidden), input(),
                        Rows<float>(narrow.data(), rows, rank));
        kernels::matmul(exec_->pool(), pack(table_, vocab, rank),
                        Rows<const float>(narrow.data(), rows, rank), Rows<float>(wide.data(), rows, vocab));
        std::vector<std::vector<TokenId>> lists;
        for (int r = 0; r < rows; ++r) {
            const float* row = wide.data() + r * vocab;
            std::vector<TokenId> ids(vocab);
            std::iota(ids.begin(), ids.end(), 0);
            std::sort(ids.begin(), ids.end(),
                      [&](TokenId a, TokenId b) { return row[a] != row[b] ? row[a] > row[b] : a < b; });
            ids.resize(k);
            std::sort(ids.begin(), ids.end());
            lists.push_back(std::move(ids));
        }
        return lists;
    }
};

TEST_F(SpecVocab, EachRowHasExactLogitsOfItsOwnShortlist) {
    const auto logits = dense();
    for (const std::string spec : {"specvocab:k=40", "specvocab:k=40,share=per-row"}) {
        const auto head = make(spec);
        const auto support = expected(40);
        const Proposal found = propose(*head, 1, 10);
        for (int r = 0; r < rows; ++r) expect_row(found, r, logits[r], support[r]);
        EXPECT_TRUE(saw(Phase::router) && saw(Phase::head) && saw(Phase::topk));
        const auto all = scores(*head, 1);
        for (int r = 0; r < rows; ++r)
            for (TokenId id = 0; id < vocab; ++id) {
                const auto& own = support[r];
                const float score = all[r * vocab + id];
                if (std::binary_search(own.begin(), own.end(), id))
                    ASSERT_EQ(score, logits[r][static_cast<std::size_t>(id)]);
                else
                    ASSERT_TRUE(std::isinf(score) && score < 0);
            }
    }
}

TEST_F(SpecVocab, SharedReadsGiveTheSameResults) {
    const auto shared = make("specvocab:k=30"), alone = make("specvocab:k=30,share=per-row");
    const Proposal together = propose(*shared, 0, 8), apart = propose(*alone, 0, 8);
    for (int r = 0; r < rows; ++r) {
        expect_same_row(apart, r, together, r);
        expect_same_row(propose(*shared, input().slice(r, 1), 0, 8, {}), 0, together, r);
    }
}

TEST_F(SpecVocab, FullShortlistEqualsFullHead) {
    const auto head = make("specvocab:k=301"), full = make("full");
    const Proposal found = propose(*head, 0, 12), expected = propose(*full, 0, 12);
    for (int r = 0; r < rows; ++r) expect_same_row(found, r, expected, r);
    EXPECT_EQ(propose(*make("specvocab:k=3"), 0, 12).counts, std::vector<int>(rows, 3));
}

TEST_F(SpecVocab, SizesPerLevel) {
    const auto head = make("specvocab:k=40/20/5");
    const auto logits = dense();
    for (int level = 0; level < 5; ++level) {
        const auto support = expected(level == 0 ? 40 : level == 1 ? 20 : 5);
        const Proposal found = propose(*head, level, 10);
        for (int r = 0; r < rows; ++r) expect_row(found, r, logits[r], support[r]);
    }
}

TEST_F(SpecVocab, StateReportsShortlistsOfItsRows) {
    const auto head = make("specvocab:k=25"), per_row = make("specvocab:k=25,share=per-row");
    const auto a = head->begin_prompt({}, {}), b = head->begin_prompt({}, {});
    const auto support = expected(25);
    propose(*head, 2, 6, {a.get(), a.get(), a.get(), b.get(), b.get()});
    const auto together = [&](int first, int end) {
        std::set<TokenId> ids;
        for (int r = first; r < end; ++r) ids.insert(support[r].begin(), support[r].end());
        return std::vector<TokenId>(ids.begin(), ids.end());
    };
    EXPECT_EQ(covered(*head, 2, a.get()), together(0, 3));
    EXPECT_EQ(head->cost_at(a.get(), 3, 2).row_tokens, 25);
    EXPECT_EQ(head->cost_at(a.get(), 3, 2).active_rows, static_cast<double>(together(0, 3).size()));
    EXPECT_EQ(covered(*head, 2, b.get()), together(3, 5));
    EXPECT_TRUE(covered(*head, 1, a.get()).empty());
    EXPECT_EQ(head->cost_at(a.get(), 3, 2).active_rows, static_cast<double>(together(0, 3).size()));
    EXPECT_EQ(head->cost_at(nullptr, 3, 2).active_rows, 75);
    propose(*per_row, 2, 6, {a.get(), a.get(), a.get(), b.get(), b.get()});
    EXPECT_EQ(per_row->cost_at(a.get(), 3, 2).active_rows, 75);
    // A new round does not use results of the last one.
    begin_round(*head, {a.get()});
    EXPECT_TRUE(covered(*head, 2, a.get()).empty());
}

TEST_F(SpecVocab, TrimmedDrafterHeadNeedsMatchingArtefact) {
    std::vector<TokenId> held;
    for (int i = 0; i < vocab; i += 2) held.push_back(i);
    const kernels::Matrix own = matrix_.gather_rows(exec_->pool(), held);
    const auto logits = dense();
    weights_.lm_head = &own;
    weights_.row_ids = held;
    EXPECT_THAT(error_message("specvocab"), ::testing::HasSubstr("token 1, which the drafter's LM head"));
    Tensors tensors;
    tensors.floats("down", {rank, hidden}, down_);
    tensors.floats("vocab", {static_cast<int>(held.size()), rank}, random(held.size() * rank, 2));
    tensors.integers("ids", held);
    save(LmHeadFixture::info("specvocab"), tensors);
    const auto head = make("specvocab:k=151");
    const Proposal found = propose(*head, 0, 9);
    for (int r = 0; r < rows; ++r) expect_row(found, r, logits[r], held);
}

TEST_F(SpecVocab, RejectsOtherRank) {
    EXPECT_THAT(error_message("specvocab:rank=16"), ::testing::HasSubstr("rank=8, not rank=16"));
    EXPECT_EQ(error_message("specvocab:k=0"), "head specvocab: k=0 is outside 1..1048576");
    EXPECT_EQ(error_message("specvocab:share=all"), "head specvocab: share=all is not one of union|per-row");
}

}  // namespace
}  // namespace draftscope::testing
