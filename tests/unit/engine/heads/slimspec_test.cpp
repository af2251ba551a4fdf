#include <numeric>

#include "kernels/host_rows.h"
#include "tests/support/lm_head_fixture.h"

namespace draftscope::testing {
namespace {

class SlimSpec : public LmHeadFixture {
  protected:
    /// Reference for z = up (down h) with the kernels' matmul, without columns of `up` beyond the rank.
    std::vector<std::vector<float>> expected(const std::vector<float>& down, int rank,
                                             const std::vector<float>& up, int up_columns, int up_rows) {
        const auto pack = [&](const std::vector<float>& values, int n, int k, int columns) {
            return kernels::Matrix::pack(*exec_, matrix_.precision(), n, k, [&](int row, float* out) {
                std::copy_n(values.begin() + std::ptrdiff_t{row} * columns, k, out);
            });
        };
        const kernels::Matrix a = pack(down, rank, hidden, hidden), b = pack(up, up_rows, rank, up_columns);
        std::vector<float> narrow(static_cast<std::size_t>(rows * rank)),
            wide(static_cast<std::size_t>(rows * up_rows));
        kernels::matmul(exec_->pool(), a, input(), Rows<float>(narrow.data(), rows, rank));
        kernels::matmul(exec_->pool(), b, Rows<const float>(narrow.data(), rows, rank),
                        Rows<float>(wide.data(), rows, up_rows));
        std::vector<std::vector<float>> found;
        for (int r = 0; r < rows; ++r)
            found.emplace_back(wide.begin() + r * up_rows, wide.begin() + (r + 1) * up_rows);
        return found;
    }
    static std::vector<TokenId> everything() {
        std::vector<TokenId> ids(vocab);
        std::iota(ids.begin(), ids.end(), 0);
        return ids;
    }
};

TEST_F(SlimSpec, ProposesFromTheLowRankLogitsOfEveryToken) {
    const auto down = random(8 * hidden, 1), up = random(vocab * 8, 2);
    Tensors tensors;
    tensors.floats("down", {8, hidden}, down);
    tensors.floats("up", {vocab, 8}, up);
    save(LmHeadFixture::info("slimspec"), tensors);
    const auto head = make("slimspec");
    const auto dense = expected(down, 8, up, 8, vocab);
    for (const int level : {0, 3}) {
        const Proposal found = propose(*head, level, 10);
        for (int r = 0; r < rows; ++r) expect_row(found, r, dense[r], everything());
    }
    EXPECT_TRUE(saw(Phase::head) && saw(Phase::topk));
    EXPECT_FALSE(saw(Phase::gather) || saw(Phase::router));
    EXPECT_EQ(covered(*head, 1), everything());
    const auto all = scores(*head);
    for (int r = 0; r < rows; ++r)
        for (int i = 0; i < vocab; ++i) ASSERT_EQ(all[r * vocab + i], dense[r][static_cast<std::size_t>(i)]);
    EXPECT_EQ(head->cost(4).active_rows, vocab);
    EXPECT_EQ(head->cost(4).flops_per_row, 2.0 * 8 * (hidden + vocab));
    EXPECT_LT(head->cost(4).bytes, matrix_.bytes());
}

TEST_F(SlimSpec, RanksPerLevelShareOneUpProjection) {
    const auto down0 = random(8 * hidden, 1), down1 = random(4 * hidden, 5), up = random(vocab * 8, 2);
    Tensors tensors;
    tensors.floats("down.0", {8, hidden}, down0);
    tensors.floats("down.1", {4, hidden}, down1);
    tensors.floats("up", {vocab, 8}, up);
    ArtefactInfo info = LmHeadFixture::info("slimspec");
    info.parameters = {{"rank", "8/4"}};
    save(info, tensors);
    const auto head = make("slimspec:rank=8/4");
    const auto first = expected(down0, 8, up, 8, vocab), deeper = expected(down1, 4, up, 8, vocab);
    for (int level = 0; level < 4; ++level) {
        const Proposal found = propose(*head, level, 6);
        for (int r = 0; r < rows; ++r) expect_row(found, r, (level == 0 ? first : deeper)[r], everything());
    }
    EXPECT_EQ(head->cost_at(nullptr, 1, 0).flops_per_row, 2.0 * 8 * (hidden + vocab));
    EXPECT_EQ(head->cost_at(nullptr, 1, 7).flops_per_row, 2.0 * 4 * (hidden + vocab));
}

TEST_F(SlimSpec, EachMedusaHeadHasItsOwnFactors) {
    Tensors tensors;
    std::vector<std::vector<float>> downs, ups;
    for (int head = 0; head < 3; ++head) {
        downs.push_back(random(8 * hidden, 20 + static_cast<std::uint64_t>(head)));
        ups.push_back(random(vocab * 8, 30 + static_cast<std::uint64_t>(head)));
        tensors.floats("down." + std::to_string(head), {8, hidden}, downs.back());
        tensors.floats("up." + std::to_string(head), {vocab, 8}, ups.back());
    }
    ArtefactInfo about = LmHeadFixture::info("slimspec");
    about.parameters = {{"rank", "8"}};  // one number for all levels
    save(about, tensors);
    const auto head = make("slimspec:rank=8");
    for (int level = 0; level < 5; ++level) {
        const auto at = static_cast<std::size_t>(std::min(level, 2));
        const auto dense = expected(downs[at], 8, ups[at], 8, vocab);
        const Proposal found = propose(*head, level, 4);
        for (int r = 0; r < rows; ++r) expect_row(found, r, dense[r], everything());
    }
}

TEST_F(SlimSpec, AnArtefactMayScoreSomeTokensOnly) {
    std::vector<std::int32_t> ids;
    for (int i = 1; i < vocab; i += 3) ids.push_back(i);
    const int n = static_cast<int>(ids.size());
    const auto down = random(8 * hidden, 1), up = random(static_cast<std::size_t>(n) * 8, 2);
    Tensors tensors;
    tensors.floats("down", {8, hidden}, down);
    tensors.floats("up", {n, 8}, up);
    tensors.integers("ids", ids);
    save(LmHeadFixture::info("slimspec"), tensors);
    const auto head = make("slimspec");
    EXPECT_EQ(covered(*head, 0), ids);
    const auto dense = expected(down, 8, up, 8, n);
    const Proposal found = propose(*head, 0, 5);
    for (int r = 0; r < rows; ++r) {
        std::vector<float> logits(vocab, 0.0f);
        for (int i = 0; i < n; ++i) logits[ids[i]] = dense[r][static_cast<std::size_t>(i)];
        expect_row(found, r, logits, ids);
    }
}

TEST_F(SlimSpec, RowsAreIndependent) {
    Tensors tensors;
    tensors.floats("down", {8, hidden}, random(8 * hidden, 1));
    tensors.floats("up", {vocab, 8}, random(vocab * 8, 2));
    save(LmHeadFixture::info("slimspec"), tensors);
    const auto head = make("slimspec");
    const Proposal together = propose(*head, 1, 7);
    for (int r = 0; r < rows; ++r)
        expect_same_row(propose(*head, input().slice(r, 1), 1, 7, {}), 0, together, r);
}

TEST_F(SlimSpec, RejectsMismatchedArtefacts) {
    Tensors good;
    good.floats("down", {8, hidden}, random(8 * hidden, 1));
    good.floats("up", {vocab, 8}, random(vocab * 8, 2));
    ArtefactInfo info = LmHeadFixture::info("slimspec");
    info.parameters = {{"rank", "8"}};
    save(info, good);
    EXPECT_THAT(error_message("slimspec:rank=4"), ::testing::HasSubstr("was fitted with rank=8, not rank=4"));
    EXPECT_EQ(error_message("slimspec:rank=8"), "");
    info.parameters = {{"rank", "4"}};
    save(info, good);
    EXPECT_THAT(error_message("slimspec"),
                ::testing::HasSubstr("metadata has rank 4, but tensor 'down' has 8"));
    info.parameters.clear();
    Tensors bad = good;
    bad.floats("up", {vocab, 7}, random(vocab * 7, 2));
    save(info, bad);
    EXPECT_THAT(error_message("slimspec"),
                ::testing::HasSubstr("'up' has shape [301, 7], expected [301, 8]"));
    bad.floats("up", {vocab - 1, 8}, random((vocab - 1) * 8, 2));
    save(info, bad);
    EXPECT_THAT(error_message("slimspec"),
                ::testing::HasSubstr("'up' has shape [300, 8], expected [301, 8]"));
    bad.floats("up", {vocab - 1, 9}, random((vocab - 1) * 9, 2));
    save(info, bad);
    EXPECT_THAT(error_message("slimspec"), ::testing::HasSubstr("'up' has 300 rows, expected 301"));
    bad.remove("up");
    save(info, bad);
    EXPECT_THAT(error_message("slimspec"), ::testing::HasSubstr("'up' is missing"));
    bad = good;
    bad.floats("down", {8, 32}, random(8 * 32, 1));
    save(info, bad);
    EXPECT_THAT(error_message("slimspec"),
                ::testing::HasSubstr("'down' has shape [8, 32], expected [any, 64]"));
    for (const std::vector<std::int32_t>& ids :
         {std::vector<std::int32_t>{3, 2}, {3, 3}, {3, vocab}, {-1, 3}, {}}) {
        bad = good;
        bad.integers("ids", ids);
        save(info, bad);
        EXPECT_THAT(error_message("slimspec"), ::testing::HasSubstr("tensor 'ids'"));
    }
}

}  // namespace
}  // namespace draftscope::testing
