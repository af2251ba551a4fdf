#include "engine/fit/eagle_pass.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/rng.h"

namespace draftscope::fit {
namespace {

Dense random_dense(int rows, int cols, Rng& rng, double scale, double middle = 0) {
    Dense matrix(rows, cols);
    for (float& v : matrix.data) v = static_cast<float>(middle + rng.normal() * scale);
    return matrix;
}

struct Case {
    bool eagle3 = false, norm_before_residual = false, bias = false;
};

/// A tiny drafter with inputs. The loss is a fixed random combination of the head's inputs at every step.
class TinyPass {
  public:
    explicit TinyPass(const Case& which) {
        Rng rng(3);
        shape_ = {12, 4, 2, 6, 10, which.eagle3 ? 20 : 12, which.eagle3, which.norm_before_residual, 1e-5f};
        const int d = shape_.hidden, inputs = which.eagle3 ? 2 * d : d;
        const auto fan = [](int n) { return 1.0 / std::sqrt(n); };
        weights_.fc = random_dense(d, which.eagle3 ? shape_.features : 2 * d, rng, fan(2 * d));
        if (which.bias) weights_.fc_bias = random_dense(1, d, rng, 0.3);
        weights_.q = random_dense(24, inputs, rng, 2 * fan(inputs));
        weights_.k = random_dense(12, inputs, rng, 2 * fan(inputs));
        weights_.v = random_dense(12, inputs, rng, fan(inputs));
        weights_.o = random_dense(d, 24, rng, fan(24));
        weights_.gate = random_dense(10, d, rng, fan(d));
        weights_.up = random_dense(10, d, rng, fan(d));
        weights_.down = random_dense(d, 10, rng, fan(10));
        weights_.post_norm = random_dense(1, d, rng, 0.2, 1.0);
        if (which.eagle3) {
            weights_.input_norm = random_dense(1, d, rng, 0.2, 1.0);
            weights_.hidden_norm = random_dense(1, d, rng, 0.2, 1.0);
            weights_.final_norm = random_dense(1, d, rng, 0.2, 1.0);
        }
        features_ = random_dense(slots, shape_.features, rng, 1.0);
        embeddings_ = random_dense(slots + steps, d, rng, 1.0);
        for (int s = 0; s < steps; ++s) wanted_.push_back(random_dense(slots, d, rng, 1.0));
        rope_ = kernels::make_rope_table(6, 100.0f, slots + steps);
    }

    double loss(EaglePass& pass) {
        pass.forward(*exec_, features_.view(), embeddings_.view(), steps);
        double sum = 0;
        for (int s = 0; s < steps; ++s) {
            const auto rows = pass.lm_head_input(s);
            for (int r = 0; r < slots; ++r)
                for (std::size_t j = 0; j < rows.row(r).size(); ++j)
                    sum += static_cast<double>(rows.row(r)[j]) * static_cast<double>(wanted_[s].row(r)[j]);
        }
        return sum;
    }

    static constexpr int slots = 5, steps = 3;
    std::unique_ptr<kernels::Exec> exec_ = kernels::make_cpu_exec(1);
    EagleShape shape_;
    EagleWeights weights_;
    Dense features_, embeddings_;
    std::vector<Dense> wanted_;
    kernels::RopeTable rope_;
};

TEST(EaglePass, GradientsAreThoseOfFiniteDifferences) {
    for (const Case& which : {Case{false, false, false}, Case{false, false, true}, Case{true, false, false},
                              Case{true, true, false}}) {
        TinyPass tiny(which);
        EaglePass pass(tiny.shape_, tiny.weights_, tiny.rope_);
        tiny.loss(pass);
        pass.backward(*tiny.exec_, tiny.wanted_);
        const auto names = tiny.weights_.all();
        const std::vector<Parameter> parameters = pass.parameters();
        ASSERT_EQ(names.size(), parameters.size());
        for (std::size_t p = 0; p < parameters.size(); ++p) {
            const std::vector<float> gradient(parameters[p].gradient.begin(), parameters[p].gradient.end());
            double squares = 0;
            for (const float g : gradient) squares += static_cast<double>(g) * static_cast<double>(g);
            const double typical = std::sqrt(squares / static_cast<double>(gradient.size()));
            EXPECT_GT(typical, 0.0) << names[p].first;
            for (std::size_t i = 0; i < gradient.size(); i += 1 + gradient.size() / 13) {
                float& value = parameters[p].values[i];
                const float before = value;
                constexpr float step = 2e-3f;
                value = before + step;
                const double up = tiny.loss(pass);
                value = before - step;
                const double down = tiny.loss(pass);
                value = before;
                EXPECT_NEAR(static_cast<double>(gradient[i]), (up - down) / (2.0 * static_cast<double>(step)),
                            0.01 * (std::abs(static_cast<double>(gradient[i])) + typical) + 2e-3)
                    << names[p].first << "[" << i << "] eagle3=" << which.eagle3
                    << " norm_before_residual=" << which.norm_before_residual;
            }
        }
    }
}

// A row of a later step must not attend to later slots, so tokens after a slot do not change it.
TEST(EaglePass, LaterSlotsDoNotAffectEarlierOnes) {
    TinyPass tiny({true, false, false});
    EaglePass pass(tiny.shape_, tiny.weights_, tiny.rope_);
    tiny.loss(pass);
    std::vector<std::vector<float>> before;
    for (int s = 0; s < TinyPass::steps; ++s)
        before.emplace_back(pass.lm_head_input(s).row(1).begin(), pass.lm_head_input(s).row(1).end());
    for (int r = 2; r < TinyPass::slots; ++r)
        for (float& v : tiny.features_.row(r)) v += 1.0f;
    tiny.loss(pass);
    for (int s = 0; s < TinyPass::steps; ++s) {
        const auto row = pass.lm_head_input(s).row(1);
        EXPECT_EQ(std::vector<float>(row.begin(), row.end()), before[s]) << s;
    }
}

}  // namespace
}  // namespace draftscope::fit
