#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "engine/transformer/target.h"
#include "tests/support/demo_model.h"
#include "tests/support/device_rig.h"
#include "tests/support/results.h"

/// Compares the demo model on a device with the CPU at the same precision. Both read the tokens that the CPU
/// selects.
namespace draftscope::testing {
namespace {

class DeviceDemo : public ::testing::TestWithParam<std::string> {};

struct Row {
    int best = 0;
    float margin = 0;  ///< difference to the second-best logit
};
Row row_of(std::span<const float> logits) {
    Row row;
    row.best = static_cast<int>(std::max_element(logits.begin(), logits.end()) - logits.begin());
    float second = -1e30f;
    for (std::size_t i = 0; i < logits.size(); ++i)
        if (static_cast<int>(i) != row.best) second = std::max(second, logits[i]);
    row.margin = logits[row.best] - second;
    return row;
}

/// Both back ends select the same token if its margin exceeds twice the largest difference of their logits.
TEST_P(DeviceDemo, BestTokensAreTheCpusWhereTheyAreClear) {
    ASSERT_TRUE(demo_model_present()) << demo_model_hint();
    const TwinExec on(GetParam());
    if (!on.why_not.empty()) GTEST_SKIP() << on.why_not;
    const auto& device_exec = on.exec;
    const auto here_exec = kernels::make_cpu_backend(2);
    auto here = Target::load(demo_model_path(), *here_exec, kernels::Precision::bf16);
    auto on_device = Target::load(demo_model_path(), *device_exec, std::nullopt);
    ASSERT_TRUE(is_ok(here));
    ASSERT_TRUE(is_ok(on_device));
    const std::vector<TokenId> prompt = (*here)->tokenizer()->encode("The lighthouse stood", false);
    const int steps = GetParam() == "cuda" ? 200 : 3;
    const int slots = static_cast<int>(prompt.size()) + steps + 1;
    KvCache a = (*here)->make_cache(slots), b = (*on_device)->make_cache(slots);
    ForwardOutput x, y;
    ASSERT_TRUE((*here)->prefill(a, prompt, {}, x).ok());
    ASSERT_TRUE(is_ok((*on_device)->prefill(b, prompt, {}, y)));
    int unclear = 0, exceptions = 0;
    for (int step = 0; step <= steps; ++step) {
        const Row mine = row_of(x.logits), theirs = row_of(y.logits);
        float difference = 0;
        for (std::size_t i = 0; i < x.logits.size(); ++i)
            difference = std::max(difference, std::fabs(x.logits[i] - y.logits[i]));
        // Logits range from about -10 to 30; an error in a layer changes them by more than one.
        EXPECT_LT(difference, 1.0f) << "step " << step;
        if (mine.margin <= 2 * difference) {
            ++unclear;
        } else if (mine.best != theirs.best) {
            ++exceptions;
        }
        if (step == steps) break;
        const TokenId next = mine.best;
        const auto forward = [&](Target& target, KvCache& cache, ForwardOutput& out) {
            const SequenceTokens rows{&cache, {&next, 1}, {}, nullptr};
            ASSERT_TRUE(target.forward({{&rows, 1}, {}, {}, true}, out).ok());
            cache.commit(1);
        };
        forward(**here, a, x);
        forward(**on_device, b, y);
    }
    EXPECT_EQ(exceptions, 0);
    RecordProperty("unclear", unclear);
}

INSTANTIATE_TEST_SUITE_P(Devices, DeviceDemo, engine_device_kinds(), kind_of);

}  // namespace
}  // namespace draftscope::testing
