#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "tests/support/lm_head_fixture.h"
#include "tests/support/ranking_file.h"

namespace draftscope::testing {
namespace {

class Rdk : public LmHeadFixture {
  protected:
    Rdk() { artefacts_.ranking_path = ranking_.path(); }

    static std::vector<std::int32_t> descending() {
        std::vector<std::int32_t> ids(vocab);
        std::iota(ids.rbegin(), ids.rend(), 0);
        return ids;
    }
    /// Every token keeps half and gives a quarter each to two others, except those not in `ids`.
    void make_affinity(bool every_row) {
        std::vector<std::int32_t> ids, neighbours;
        std::vector<float> weights;
        for (int t = 0; t < vocab; ++t) {
            if (!every_row && t % 4 == 0) continue;
            ids.push_back(t);
            for (const int to : {t, (t * 7 + 3) % vocab, (t + 40) % vocab}) neighbours.push_back(to);
            weights.insert(weights.end(), {0.5f, 0.25f, 0.25f});
        }
        const auto rows_of = static_cast<std::int64_t>(ids.size());
        tensors_.integers("neighbours", {rows_of, 3}, neighbours);
        tensors_.floats("weights", {rows_of, 3}, weights);
        if (!every_row) tensors_.integers("ids", ids);
        save_affinity(LmHeadFixture::info("rdk"), tensors_);
        every_row_ = every_row;
    }
    /// Reference for q' M: the probability that each token receives from the softmax of `logits` over
    /// `support` at `temperature`.
    std::map<TokenId, double> spread(const std::vector<float>& logits, const std::vector<TokenId>& support,
                                     double temperature) const {
        double sum = 0;
        for (const TokenId id : support) sum += std::exp(static_cast<double>(logits[id]) / temperature);
        std::map<TokenId, double> mass;
        for (const TokenId id : support) {
            const double q = std::exp(static_cast<double>(logits[id]) / temperature) / sum;
            if (!every_row_ && id % 4 == 0) {
                mass[id] += q;
                continue;
            }
            mass[id] += 0.5 * q;
            mass[(id * 7 + 3) % vocab] += 0.25 * q;
            mass[(id + 40) % vocab] += 0.25 * q;
        }
        return mass;
    }
    static std::vector<TokenId> frequent(int size) {
        std::vector<TokenId> ids = {0, 2};
        for (int i = vocab - size + 2; i < vocab; ++i) ids.push_back(i);
        return ids;
    }

    RankingFile ranking_{descending()};
    Tensors tensors_;
    bool every_row_ = true;
};

TEST_F(Rdk, RedistributesDraftsToTokensOutsideSupport) {
    for (const bool every_row : {true, false}) {
        tensors_ = {};
        make_affinity(every_row);
        const auto head = make("fr-spec:v=40,eos=yes+rdk");
        const auto logits = dense();
        for (const double temperature : {0.0, 0.7}) {
            PhaseRecorder phases;
            HostCall call(*exec_, phases);
            const std::vector<SparseLogits> support = call.support(*head, 1, input(), {}, temperature);
            ASSERT_EQ(support.size(), static_cast<std::size_t>(rows));
            const Proposal found = call.propose(*head, 1, input(), {}, 12);
            for (int r = 0; r < rows; ++r) {
                const double t = temperature > 0 ? temperature : 1.0;
                const auto mass = spread(logits[r], frequent(40), t);
                const std::vector<float>& row = support[r].logits;
                ASSERT_EQ(row.size(), static_cast<std::size_t>(vocab));
                EXPECT_TRUE(support[r].ids.empty());
                double sum = 0;
                for (const float logit : row) sum += std::exp(static_cast<double>(logit) / t);
                EXPECT_NEAR(sum, 1.0, 1e-5);
                for (TokenId id = 0; id < vocab; ++id) {
                    const auto expected = mass.find(id);
                    EXPECT_EQ(std::isinf(row[id]), expected == mass.end());
                    EXPECT_NEAR(std::exp(static_cast<double>(row[id]) / t),
                                expected == mass.end() ? 0.0 : expected->second, 1e-6);
                }
                if (temperature > 0) continue;
                for (int c = 0; c < 12; ++c) {
                    const auto cell = static_cast<std::size_t>(r * 12 + c);
                    const double here = mass.at(found.ids[cell]);
                    EXPECT_NEAR(std::exp(static_cast<double>(found.logits[cell])), here, 1e-6);
                    if (c > 0) {
                        EXPECT_GE(found.logits[cell - 1], found.logits[cell]);
                    }
                    const auto better = std::count_if(mass.begin(), mass.end(), [&](const auto& m) {
                        return m.second > here * (1 + 1e-6);
                    });
                    EXPECT_LE(better, c);
                }
            }
        }
        // Tokens outside the 40 can now be drafted and are covered.
        std::vector<TokenId> covered_ids = covered(*head, 0), expected;
        for (const auto& [id, mass] : spread(logits[0], frequent(40), 1.0)) expected.push_back(id);
        EXPECT_EQ(covered_ids, expected);
        EXPECT_GT(covered_ids.size(), 80u);
        EXPECT_GT(head->cost(1).bytes, make("fr-spec:v=40,eos=yes")->cost(1).bytes);
        const auto all = scores(*head);
        for (TokenId id = 0; id < vocab; ++id)
            EXPECT_EQ(std::isinf(all[id]), !std::binary_search(expected.begin(), expected.end(), id));
    }
}

TEST_F(Rdk, RowsAreIndependent) {
    make_affinity(true);
    for (const std::string spec : {"fr-spec:v=40+rdk", "full+rdk", "microspec:wmax=30+rdk"}) {
        const auto head = make(spec);
        const auto state = head->begin_prompt(std::vector<TokenId>{5, 9, 40, 41, 200}, {});
        const Proposal together = propose(*head, 0, 6, std::vector<HeadState*>(rows, state.get()));
        for (int r = 0; r < rows; ++r)
            expect_same_row(propose(*head, input().slice(r, 1), 0, 6, {state.get()}), 0, together, r);
    }
}

TEST_F(Rdk, TheSuffixIsPartOfTheSpec) {
    EXPECT_EQ(to_text(parse_head_spec(" fr-spec:v=8192 +rdk").value()), "fr-spec:v=8192+rdk");
    EXPECT_EQ(to_text(parse_head_spec("full+rdk").value()), "full+rdk");
    EXPECT_TRUE(parse_head_spec("full+rdk")->rdk);
    EXPECT_FALSE(parse_head_spec("full")->rdk);
    EXPECT_FALSE(parse_head_spec("+rdk").ok());
    EXPECT_THAT(error_message("fr-spec:v=40+rdk"), ::testing::HasSubstr("--head-weights rdk=FILE"));
}

TEST_F(Rdk, RejectsInvalidAffinities) {
    const auto error_after = [&](auto change) {
        make_affinity(true);
        Tensors tensors = tensors_;
        change(tensors);
        save_affinity(LmHeadFixture::info("rdk"), tensors);
        return error_message("full+rdk");
    };
    EXPECT_THAT(error_after([](Tensors& t) {
                    t.floats("weights", {vocab, 3}, std::vector<float>(vocab * 3, 0.5f));
                }),
                ::testing::HasSubstr("sums to 1.5"));
    EXPECT_THAT(error_after([](Tensors& t) {
                    t.floats("weights", {vocab, 3}, std::vector<float>(vocab * 3, -1.0f));
                }),
                ::testing::HasSubstr("contains -1"));
    EXPECT_THAT(error_after([](Tensors& t) {
                    t.floats("weights", {vocab, 2}, std::vector<float>(vocab * 2, 0.5f));
                }),
                ::testing::HasSubstr("both have shape [301, n]"));
    EXPECT_THAT(error_after([](Tensors& t) {
                    t.integers("neighbours", {vocab, 3}, std::vector<std::int32_t>(vocab * 3, vocab));
                }),
                ::testing::HasSubstr("contains 301"));
    EXPECT_THAT(error_after([](Tensors& t) { t.remove("neighbours"); }),
                ::testing::HasSubstr("'neighbours' is missing"));
    save_affinity(LmHeadFixture::info("slimspec"), tensors_);
    EXPECT_THAT(error_message("full+rdk"),
                ::testing::HasSubstr("weights of head slimspec, expected head rdk"));
}

}  // namespace
}  // namespace draftscope::testing
