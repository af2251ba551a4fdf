#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/numel.h"
#include "engine/decode/exact_check.h"
#include "kernels/host_rows.h"
#include "tests/support/decode_fixture.h"
#include "tests/support/device_rig.h"
#include "tests/support/results.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/tiny_drafter.h"
#include "tests/support/tiny_model.h"

/// --numerics fast on a device: a library computes products of many rows, and the run counts mismatches with
/// exact kernels.
namespace draftscope::testing {
namespace {

class DeviceNumerics : public ::testing::TestWithParam<std::string> {
  protected:
    DeviceNumerics()
        : target_(DecodeFixture::build(tiny(), kernels::Precision::bf16, on_.exec.get())),
          eagle_(target_->config(), 78, vocab),
          fixture_(std::move(target_), {{"eagle3", eagle_.folder()}}, "") {
        fixture_.run_on(*on_.exec);
    }
    void SetUp() override {
        if (!on_.why_not.empty()) GTEST_SKIP() << on_.why_not;
        // The tests need the library.
        const Status on_device = device().use_cublaslt(20);
        if (!on_device.ok()) GTEST_SKIP() << on_device.error().message;
        EXPECT_TRUE(device().use_cublaslt(0).ok());
    }
    kernels::Backend& device() { return *on_.exec; }
    ExactCheck check(const std::vector<std::vector<TokenId>>& texts, double temperature) {
        ExactCheck found;
        Sampling sampling;
        sampling.temperature = temperature;
        sampling.seed = DecodeCase().seed;
        for (std::size_t p = 0; p < texts.size(); ++p) {
            EXPECT_TRUE(
                is_ok(check_exact(fixture_.target(), *on_.exec, sampling, p, prompts()[p], texts[p], found)));
        }
        return found;
    }
    std::vector<std::vector<TokenId>> decode(double temperature) {
        DecodeCase setting;
        setting.drafter = "eagle3";
        setting.temperature = temperature;
        std::vector<std::vector<TokenId>> texts;
        for (const auto& outcome : fixture_.decode(setting, prompts())) texts.push_back(outcome.tokens);
        return texts;
    }

    TwinExec on_{GetParam()};
    std::unique_ptr<Target> target_;
    TinyEagle3 eagle_;
    DecodeFixture fixture_;
};

/// check_exact() finds no mismatch in a text of exact kernels, and finds a token that was changed.
TEST_P(DeviceNumerics, FindsTheTokensThatExactKernelsWouldNotEmit) {
    std::vector<std::vector<TokenId>> texts = decode(0);
    const ExactCheck same = check(texts, 0);
    EXPECT_EQ(same.texts, 3);
    EXPECT_EQ(same.texts_with_mismatches, 0);
    EXPECT_EQ(same.mismatches, 0);
    EXPECT_FALSE(same.first.has_value());
    EXPECT_EQ(same.tokens, static_cast<std::int64_t>(texts[0].size() + texts[1].size() + texts[2].size()));
    texts[1][5] = (texts[1][5] + 1) % vocab;
    const ExactCheck changed = check(texts, 0);
    EXPECT_EQ(changed.texts_with_mismatches, 1);
    EXPECT_GE(changed.mismatches, 1);
    ASSERT_TRUE(changed.first.has_value());
    EXPECT_EQ(changed.first->sequence, 1u);
    EXPECT_EQ(changed.first->token, 5);
}

/// use_cublaslt() makes decoding use the library, and after use_cublaslt(0) texts are exact again.
TEST_P(DeviceNumerics, FastUsesALibraryAndExactNever) {
    const std::vector<std::vector<TokenId>> exact = decode(0);
    EXPECT_EQ(device().stats().library, "");
    ASSERT_TRUE(device().use_cublaslt(20).ok());
    const std::vector<std::vector<TokenId>> fast = decode(0);
    if (on_.twin != nullptr)
        EXPECT_GT(on_.twin->library_products(), 0);
    else
        EXPECT_GT(device().stats().library_products, 0);
    ASSERT_TRUE(device().use_cublaslt(0).ok());
    const int products = on_.twin != nullptr ? on_.twin->library_products() : 0;
    EXPECT_EQ(decode(0), exact);
    EXPECT_TRUE(on_.twin == nullptr || on_.twin->library_products() == products);
    const ExactCheck found = check(fast, 0);
    EXPECT_EQ(found.texts, 3);
    // The texts are equal if and only if no mismatch is counted.
    EXPECT_EQ(found.mismatches == 0, fast == exact);
}

/// The library's products with a bias equal our kernels' up to rounding, for several shapes.
TEST_P(DeviceNumerics, ProductsOfTheLibraryAreOurs) {
    const int k = 192;
    kernels::Backend& on = device();
    Rng rng(3);
    for (const auto& [n, rows] : {std::pair(64, 33), {50, 130}, {1031, 64}, {7, 200}}) {
        const auto values = static_cast<std::size_t>(k);
        std::vector<float> weights(numel(n, values)), x(numel(rows, values));
        for (float& value : weights) value = static_cast<float>(rng.normal());
        for (float& value : x) value = static_cast<float>(rng.normal());
        const kernels::Matrix matrix = kernels::Matrix::pack(
            *on_.exec, kernels::Precision::bf16, n, k,
            [&](int row, float* to) { std::copy_n(weights.data() + numel(row, values), values, to); });
        std::vector<float> bias(static_cast<std::size_t>(n), 0.5f);
        std::vector<float> ours(static_cast<std::size_t>(n * rows)), theirs = ours;
        for (std::vector<float>* y : {&ours, &theirs}) {
            ASSERT_TRUE(on.use_cublaslt(y == &ours ? 0 : 20).ok());
            kernels::matmul(on_.exec->pool(), matrix, {x.data(), rows, k}, {y->data(), rows, n}, bias.data());
        }
        ASSERT_TRUE(on.use_cublaslt(0).ok());
        double largest = 0, difference = 0;
        for (std::size_t i = 0; i < ours.size(); ++i) {
            largest = std::max(largest, std::fabs(static_cast<double>(ours[i])));
            difference = std::max(difference, std::fabs(static_cast<double>(ours[i] - theirs[i])));
        }
        EXPECT_LT(difference, 1e-4 * largest) << n << " x " << rows;
    }
}

/// An fp16 checkpoint is computed in fp16. Its logits are closer to those of f32 than the logits computed in
/// bf16.
TEST_P(DeviceNumerics, FollowsACheckpointInF16) {
    const ScratchFolder folder;
    const std::string path = folder.file("tiny.gguf");
    TinyModelOptions options;
    options.f16 = true;
    ASSERT_TRUE(write_tiny_gguf(path, 5, options).ok());
    const auto cpu = kernels::make_cpu_backend(2);
    const auto exact = require(Target::load(path, *cpu, kernels::Precision::f32));
    std::vector<TokenId> text;
    Rng rng(4);
    for (int i = 0; i < 40; ++i) text.push_back(static_cast<TokenId>(rng.below(250)));
    const auto logits = [&](Target& target) {
        KvCache cache = target.make_cache(50);
        ForwardOutput out;
        EXPECT_TRUE(is_ok(target.prefill(cache, text, {}, out)));
        return out.logits;
    };
    const std::vector<float> truth = logits(*exact);
    const auto error_of = [&](std::optional<kernels::Precision> precision, kernels::Float16Kind dtype) {
        const TwinExec on(GetParam());
        const auto on_device = require(Target::load(path, *on.exec, precision));
        EXPECT_EQ(on.exec->dtype(), dtype);
        const std::vector<float> found = logits(*on_device);
        double sum = 0;
        for (std::size_t i = 0; i < truth.size(); ++i)
            sum += static_cast<double>((found[i] - truth[i]) * (found[i] - truth[i]));
        return std::sqrt(sum);
    };
    const double as_f16 = error_of(std::nullopt, kernels::Float16Kind::f16);
    const double as_bf16 = error_of(kernels::Precision::bf16, kernels::Float16Kind::bf16);
    EXPECT_LT(as_f16, as_bf16 / 4);
    EXPECT_GT(as_f16, 0);
}

INSTANTIATE_TEST_SUITE_P(Devices, DeviceNumerics, engine_device_kinds(), kind_of);

}  // namespace
}  // namespace draftscope::testing
