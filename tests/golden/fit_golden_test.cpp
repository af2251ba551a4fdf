// Expected values from torch autograd and numpy: tools/make_fit_golden.py.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/fit/eagle_pass.h"
#include "engine/fit/low_rank.h"
#include "engine/fit/router.h"
#include "kernels/gemm.h"
#include "tests/support/results.h"

namespace draftscope::fit {
namespace {

using Json = nlohmann::json;

const Json& golden() {
    static const Json json = [] {
        std::ifstream file(std::string(DS_SOURCE_DIR) + "/tests/golden/fit/golden.json");
        return Json::parse(file);
    }();
    return json;
}

/// Reads a tensor as a matrix; its last extent is the number of columns.
Dense dense(const Json& from) {
    const auto shape = from["shape"].get<std::vector<int>>();
    const auto values = from["values"].get<std::vector<float>>();
    Dense result(static_cast<int>(values.size()) / shape.back(), shape.back());
    result.data = values;
    return result;
}

void expect_near(std::span<const float> found, const Json& wanted, const std::string& what) {
    const auto values = wanted["values"].get<std::vector<double>>();
    ASSERT_EQ(found.size(), values.size()) << what;
    double largest = 0;
    for (const double v : values) largest = std::max(largest, std::abs(v));
    for (std::size_t i = 0; i < values.size(); ++i)
        EXPECT_NEAR(static_cast<double>(found[i]), values[i], 2e-5 * largest + 1e-7)
            << what << "[" << i << "]";
}

TEST(FitGolden, EagleGradientsMatchTorch) {
    const auto exec = kernels::make_cpu_exec(2);
    const Json& s = golden()["shape"];
    const int slots = s["slots"], steps = s["steps"], hidden = s["hidden"];
    for (const Json& wanted : golden()["eagle"]) {
        const Dense features = dense(wanted["features"]), embeddings = dense(wanted["embeddings"]);
        const EagleShape shape{hidden,        s["heads"],       s["kv_heads"], s["head_dim"], s["ffn"],
                               features.cols, wanted["eagle3"], false,         1e-5f};
        EagleWeights weights;
        for (const auto& [name, tensor] :
             std::initializer_list<std::pair<const char*, Dense*>>{{"fc", &weights.fc},
                                                                   {"q", &weights.q},
                                                                   {"k", &weights.k},
                                                                   {"v", &weights.v},
                                                                   {"o", &weights.o},
                                                                   {"gate", &weights.gate},
                                                                   {"up", &weights.up},
                                                                   {"down", &weights.down},
                                                                   {"post_norm", &weights.post_norm},
                                                                   {"input_norm", &weights.input_norm},
                                                                   {"hidden_norm", &weights.hidden_norm},
                                                                   {"final_norm", &weights.final_norm}}) {
            if (wanted["weights"].contains(name)) *tensor = dense(wanted["weights"][name]);
        }
        const kernels::RopeTable rope = kernels::make_rope_table(s["head_dim"], s["theta"], slots + steps);
        EaglePass pass(shape, weights, rope);
        pass.forward(*exec, features.view(), embeddings.view(), steps);
        const Dense lm_head = dense(wanted["lm_head"]), teacher = dense(wanted["teacher"]);
        std::vector<float> heads;
        std::vector<Dense> d_head(static_cast<std::size_t>(steps), Dense(slots, hidden));
        double loss = 0;
        for (int step = 0; step < steps; ++step) {
            const auto rows = pass.lm_head_input(step);
            heads.insert(heads.end(), rows.data, rows.data + rows.rows * rows.cols);
            Dense logits(slots, lm_head.rows);
            kernels::gemm(*exec, kernels::Operand::plain, rows, kernels::Operand::transposed, lm_head.view(),
                          logits.view());
            const float weight = static_cast<float>(std::pow(0.8, step)) / static_cast<float>(slots);
            const std::vector<float> row_weights(static_cast<std::size_t>(slots), weight);
            std::vector<float> kl(row_weights.size());
            kernels::forward_kl(*exec, teacher.view().slice(step * slots, slots), logits.view(), row_weights,
                                kl, logits.view());
            for (const float v : kl) loss += static_cast<double>(v) * static_cast<double>(weight);
            kernels::gemm(*exec, kernels::Operand::plain, logits.view(), kernels::Operand::plain,
                          lm_head.view(), d_head[step].view());
        }
        expect_near(heads, wanted["heads"], "head rows");
        EXPECT_NEAR(loss, wanted["loss"].get<double>(), 1e-5);
        pass.backward(*exec, d_head);
        const auto names = weights.all();
        const auto parameters = pass.parameters();
        ASSERT_EQ(names.size(), wanted["gradients"].size());
        for (std::size_t i = 0; i < names.size(); ++i)
            expect_near(parameters[i].gradient, wanted["gradients"][names[i].first], names[i].first);
    }
}

TEST(FitGolden, LowRankFactorsReachTheMinimumErrorOfNumpy) {
    const auto exec = kernels::make_cpu_exec(1);
    const Json& wanted = golden()["low_rank"];
    const Dense weights = dense(wanted["weights"]), hidden = dense(wanted["hidden"]);
    SecondMoment moment(weights.cols);
    moment.add(*exec, hidden.view());
    for (const auto& [rank, least] : wanted["least_error"].items()) {
        const auto factors =
            require(low_rank_factors(*exec, weights.view(), moment.mean(), {std::stoi(rank)}));
        double error = 0;
        for (int r = 0; r < hidden.rows; ++r)
            for (int v = 0; v < weights.rows; ++v) {
                double difference = 0;
                for (std::size_t j = 0; j < 9; ++j)
                    difference +=
                        static_cast<double>(weights.row(v)[j]) * static_cast<double>(hidden.row(r)[j]);
                for (int i = 0; i < factors.rank(); ++i) {
                    double inner = 0;
                    for (std::size_t j = 0; j < 9; ++j)
                        inner += static_cast<double>(factors.down[0].row(i)[j]) *
                                 static_cast<double>(hidden.row(r)[j]);
                    difference -= static_cast<double>(factors.up.row(v)[i]) * inner;
                }
                error += difference * difference;
            }
        EXPECT_NEAR(error / hidden.rows, least.get<double>(), 1e-4 * least.get<double>() + 1e-6) << rank;
    }
}

TEST(FitGolden, RouterGradientsMatchTorch) {
    const auto exec = kernels::make_cpu_exec(1);
    const Json& wanted = golden()["router"];
    const Json& parts = wanted["parts"];
    RouterWeights router{dense(parts["in"]), dense(parts["in_bias"]).data, dense(parts["out"]),
                         dense(parts["out_bias"]).data};
    RouterPass pass(router);
    const Dense x = dense(wanted["x"]), y = dense(wanted["y"]);
    pass.forward(*exec, x.view());
    EXPECT_NEAR(pass.backward(*exec, x.view(), y.view()), wanted["loss"].get<double>(), 1e-6);
    const auto parameters = pass.parameters();
    const char* names[] = {"in", "in_bias", "out", "out_bias"};
    for (std::size_t i = 0; i < 4; ++i)
        expect_near(parameters[i].gradient, wanted["gradients"][names[i]], names[i]);
}

}  // namespace
}  // namespace draftscope::fit
