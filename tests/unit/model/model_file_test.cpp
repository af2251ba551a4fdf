#include "engine/model/model_file.h"

#include <gtest/gtest.h>

#include <bit>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/demo_model.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/tiny_model.h"

namespace draftscope {
namespace {

using testing::TinyModelOptions;

std::string scratch(const std::string& name) {
    static const testing::ScratchFolder folder;
    return folder.file(name);
}

std::vector<float> read_all(const WeightSource& weights, const std::string& name) {
    const TensorInfo* info = weights.find(name);
    std::vector<float> out(static_cast<std::size_t>(info->rows() * info->cols()));
    for (std::int64_t row = 0; row < info->rows(); ++row)
        weights.read_row(*info, row, out.data() + row * info->cols());
    return out;
}

TEST(ModelFile, DemoModelHasItsPublishedShape) {
    ASSERT_TRUE(testing::demo_model_present()) << testing::demo_model_hint();
    const auto file = open_model_file(testing::demo_model_path());
    ASSERT_TRUE(file.ok()) << file.error().message;
    const ModelConfig& config = file->config;
    EXPECT_EQ(config.architecture, "llama");
    EXPECT_EQ(config.name, "SmolLM2-135M-Instruct");
    EXPECT_EQ(config.layers, 30);
    EXPECT_EQ(config.hidden, 576);
    EXPECT_EQ(config.heads, 9);
    EXPECT_EQ(config.kv_heads, 3);
    EXPECT_EQ(config.head_dim, 64);
    EXPECT_EQ(config.ffn, 1536);
    EXPECT_EQ(config.vocab, 49152);
    EXPECT_EQ(config.context, 8192);
    EXPECT_EQ(config.rope_theta, 100000.0f);
    EXPECT_EQ(config.norm_eps, 1e-5f);
    EXPECT_TRUE(config.tied_head);
    EXPECT_EQ(file->quantisation, "Q4_1");
    EXPECT_TRUE(file->quantised);
}

/// FNV-1a over the little-endian bytes of all values.
std::string hash_of(const std::vector<float>& values) {
    std::uint64_t hash = 0xcbf29ce484222325u;
    for (const float value : values) {
        const auto bits = std::bit_cast<std::uint32_t>(value);
        for (int byte = 0; byte < 4; ++byte) hash = (hash ^ (bits >> (8 * byte) & 0xffu)) * 0x100000001b3u;
    }
    return fmt::format("{:016x}", hash);
}

TEST(ModelFile, DemoWeightsEqualTheGgufPackagesInHalfSplitOrder) {
    ASSERT_TRUE(testing::demo_model_present()) << testing::demo_model_hint();
    const auto file = open_model_file(testing::demo_model_path());
    ASSERT_TRUE(file.ok()) << file.error().message;
    const auto golden =
        nlohmann::json::parse(std::ifstream(std::string(DS_SOURCE_DIR) + "/tests/golden/model/dequant.json"));
    ASSERT_EQ(golden["demo"].size(), 4u);
    for (const auto& [name, hash] : golden["demo"].items())
        EXPECT_EQ(hash_of(read_all(*file->weights, name)), hash.get<std::string>()) << name;
}

TEST(ModelFile, TinyFileHoldsTheModelItWasMadeFrom) {
    const std::string path = scratch("tiny.gguf");
    TinyModelOptions options;
    ASSERT_TRUE(testing::write_tiny_gguf(path, 7, options).ok());
    const auto file = open_model_file(path);
    ASSERT_TRUE(file.ok()) << file.error().message;
    options.vocab = testing::tiny_gguf_vocab();
    const ModelFile expected = testing::make_tiny_model(7, options);
    EXPECT_EQ(file->config.vocab, expected.config.vocab);
    EXPECT_EQ(file->quantisation, "F32");
    EXPECT_FALSE(file->quantised);
    EXPECT_EQ(file->weights->names(), expected.weights->names());
    // q and k too: the file stores their rows in another order, and reading undoes that.
    for (const std::string& name : expected.weights->names())
        EXPECT_EQ(read_all(*file->weights, name), read_all(*expected.weights, name)) << name;
}

}  // namespace
}  // namespace draftscope
