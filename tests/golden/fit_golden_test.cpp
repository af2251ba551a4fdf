// Expected values from numpy: tools/make_fit_golden.py.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/fit/low_rank.h"
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

TEST(FitGolden, LowRankFactorsReachTheMinimumErrorOfNumpy) {
    const auto exec = kernels::make_cpu_backend(1);
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

}  // namespace
}  // namespace draftscope::fit
