#include "kernels/host_rows.h"
#include "tests/support/lm_head_fixture.h"

namespace draftscope::testing {
namespace {

class TrainedVocab : public LmHeadFixture {
  protected:
    static std::vector<std::int32_t> ids() {
        std::vector<std::int32_t> ids = {0, 2};
        for (int i = 5; i < vocab; i += 7) ids.push_back(i);
        return ids;
    }
    static int size() { return static_cast<int>(ids().size()); }
    static std::vector<float> weight(std::uint64_t seed) {
        return random(static_cast<std::size_t>(size() * hidden), seed);
    }
    void save_head(const std::string& head, const std::vector<std::uint64_t>& seeds) {
        Tensors tensors;
        tensors.integers("ids", ids());
        for (std::size_t i = 0; i < seeds.size(); ++i)
            tensors.floats(seeds.size() == 1 ? "weight" : "weight." + std::to_string(i), {size(), hidden},
                           weight(seeds[i]));
        save(LmHeadFixture::info(head), tensors);
    }
    std::vector<std::vector<float>> expected(std::uint64_t seed) {
        const auto values = weight(seed);
        const kernels::Matrix matrix = kernels::Matrix::pack(
            *exec_, matrix_.precision(), size(), hidden,
            [&](int row, float* out) { std::copy_n(values.begin() + row * hidden, hidden, out); });
        std::vector<float> found(static_cast<std::size_t>(rows * size()));
        kernels::matmul(exec_->pool(), matrix, input(), Rows<float>(found.data(), rows, size()));
        std::vector<std::vector<float>> logits(rows, std::vector<float>(vocab, 0.0f));
        for (int r = 0; r < rows; ++r)
            for (int i = 0; i < size(); ++i)
                logits[r][static_cast<std::size_t>(ids()[i])] = found[r * size() + i];
        return logits;
    }
};

TEST_F(TrainedVocab, BothHeadsProposeFromTheirOwnWeights) {
    for (const std::string name : {"vocabtrim-t", "bcl"}) {
        save_head(name, {9});
        const auto head = make(name);
        const auto dense = expected(9);
        const Proposal found = propose(*head, 2, 10);
        for (int r = 0; r < rows; ++r) expect_row(found, r, dense[r], ids());
        EXPECT_TRUE(saw(Phase::head) && saw(Phase::topk));
        EXPECT_EQ(covered(*head, 0), ids());
        EXPECT_EQ(head->cost(1).active_rows, size());
        for (int r = 0; r < rows; ++r)
            expect_same_row(propose(*head, input().slice(r, 1), 2, 10, {}), 0, found, r);
    }
}

TEST_F(TrainedVocab, EachMedusaHeadHasItsOwnWeights) {
    save_head("vocabtrim-t", {9, 10, 11});
    const auto head = make("vocabtrim-t");
    for (int level = 0; level < 5; ++level) {
        const auto dense = expected(static_cast<std::uint64_t>(9 + std::min(level, 2)));
        const Proposal found = propose(*head, level, 4);
        for (int r = 0; r < rows; ++r) expect_row(found, r, dense[r], ids());
    }
}

/// Weights that packing does not change, so that the rows equal the full head's bit for bit.
class ExactWeights : public LmHeadFixture {
  protected:
    ExactWeights() : LmHeadFixture(kernels::Precision::f32) {}
    std::vector<float> head_rows() const {
        std::vector<float> rows_of(static_cast<std::size_t>(vocab * hidden));
        for (int r = 0; r < vocab; ++r) matrix_.unpack_row(r, std::span(rows_of).subspan(r * hidden, hidden));
        return rows_of;
    }
    void expect_full(LmHead& head) {
        const auto full = make("full");
        const Proposal found = propose(head, 0, 20), expected = propose(*full, 0, 20);
        for (int r = 0; r < rows; ++r) expect_same_row(found, r, expected, r);
    }
};

TEST_F(ExactWeights, TrainedFullVocabularyEqualsFullHead) {
    std::vector<std::int32_t> ids(vocab);
    for (int i = 0; i < vocab; ++i) ids[i] = i;
    Tensors tensors;
    tensors.integers("ids", ids);
    tensors.floats("weight", {vocab, hidden}, head_rows());
    save(LmHeadFixture::info("vocabtrim-t"), tensors);
    expect_full(*make("vocabtrim-t"));
}

TEST_F(ExactWeights, SlimSpecOfFullRankEqualsFullHead) {
    std::vector<float> same(hidden * hidden, 0.0f);
    for (int i = 0; i < hidden; ++i) same[i * hidden + i] = 1.0f;
    Tensors tensors;
    tensors.floats("down", {hidden, hidden}, same);
    tensors.floats("up", {vocab, hidden}, head_rows());
    save(LmHeadFixture::info("slimspec"), tensors);
    expect_full(*make("slimspec"));
}

TEST_F(TrainedVocab, RejectsMismatchedArtefacts) {
    EXPECT_THAT(error_message("vocabtrim-t"), ::testing::HasSubstr("draftscope fit vocabtrim-t"));
    save_head("vocabtrim-t", {9});
    weights_.always_active = {0, 1};
    EXPECT_THAT(error_message("vocabtrim-t:eos=yes"), ::testing::HasSubstr("lacks token 1, which ends"));
    EXPECT_NE(make("vocabtrim-t"), nullptr);
    weights_.always_active = {0, 2};
    Tensors tensors;
    tensors.integers("ids", ids());
    tensors.floats("weight", {size() - 1, hidden},
                   random(static_cast<std::size_t>((size() - 1) * hidden), 1));
    save(LmHeadFixture::info("vocabtrim-t"), tensors);
    EXPECT_THAT(error_message("vocabtrim-t"), ::testing::HasSubstr("tensor 'weight' has shape"));
    tensors.remove("weight");
    save(LmHeadFixture::info("vocabtrim-t"), tensors);
    EXPECT_THAT(error_message("vocabtrim-t"), ::testing::HasSubstr("'weight' is missing"));
}

}  // namespace
}  // namespace draftscope::testing
