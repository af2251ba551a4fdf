#include "engine/formats/model_file.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/formats/synthetic_model.h"
#include "tests/support/demo_model.h"
#include "tests/support/results.h"
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
    const auto file = require(open_model_file(testing::demo_model_path()));
    const ModelConfig& config = file.config;
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
    EXPECT_EQ(config.rotation.theta, 100000.0f);
    EXPECT_EQ(config.norm_eps, 1e-5f);
    EXPECT_TRUE(config.tied_head);
    EXPECT_EQ(file.quantisation, "Q4_1");
    EXPECT_TRUE(file.quantised);
}

/// FNV-1a over the little-endian bytes of all values.
std::string hash_values(const std::vector<float>& values) {
    std::uint64_t hash = 0xcbf29ce484222325u;
    for (const float value : values) {
        const auto bits = std::bit_cast<std::uint32_t>(value);
        for (int byte = 0; byte < 4; ++byte) hash = (hash ^ (bits >> (8 * byte) & 0xffu)) * 0x100000001b3u;
    }
    return fmt::format("{:016x}", hash);
}

TEST(ModelFile, DemoWeightsMatchTheGgufPackageInHalfSplitOrder) {
    ASSERT_TRUE(testing::demo_model_present()) << testing::demo_model_hint();
    const auto file = require(open_model_file(testing::demo_model_path()));
    const auto golden =
        nlohmann::json::parse(std::ifstream(std::string(DS_SOURCE_DIR) + "/tests/golden/model/dequant.json"));
    ASSERT_EQ(golden["demo"].size(), 4u);
    for (const auto& [name, hash] : golden["demo"].items())
        EXPECT_EQ(hash_values(read_all(*file.weights, name)), hash.get<std::string>()) << name;
}

TEST(ModelFile, RoundTripsATinyModel) {
    const std::string path = scratch("tiny.gguf");
    TinyModelOptions options;
    ASSERT_TRUE(testing::write_tiny_gguf(path, 7, options).ok());
    const auto file = require(open_model_file(path));
    options.vocab = testing::tiny_gguf_vocab();
    const ModelFile expected = testing::make_tiny_model(7, options);
    EXPECT_EQ(file.config.vocab, expected.config.vocab);
    EXPECT_EQ(file.quantisation, "F32");
    EXPECT_FALSE(file.quantised);
    EXPECT_EQ(file.weights->names(), expected.weights->names());
    // Includes q and k: the file permutes their rows, and reading restores the order.
    for (const std::string& name : expected.weights->names())
        EXPECT_EQ(read_all(*file.weights, name), read_all(*expected.weights, name)) << name;
}

TEST(ModelFile, ChoosesThePrecisionByTheDominantType) {
    using kernels::Precision;
    const struct {
        const char* type;
        bool quantised;
        Precision chosen;
    } rows[] = {{"Q4_0", true, Precision::int4}, {"Q4_1", true, Precision::int4},
                {"Q4_K", true, Precision::int4}, {"Q5_0", true, Precision::int8},
                {"Q6_K", true, Precision::int8}, {"Q8_0", true, Precision::int8},
                {"F16", false, Precision::bf16}, {"BF16", false, Precision::bf16}};
    for (const auto& [type, quantised, chosen] : rows) {
        ModelFile file;
        file.quantisation = type;
        file.quantised = quantised;
        EXPECT_EQ(file.auto_precision(), chosen) << type;
    }
}

TEST(ModelFile, Int4OfFourBitFilesLeavesOtherTensorsAtInt8) {
    using kernels::Precision;
    TensorInfo four, six;
    four.type = "Q4_K";
    six.type = "Q6_K";
    ModelFile file;
    file.quantisation = "Q4_K";
    EXPECT_EQ(file.packed_precision(Precision::int4, four), Precision::int4);
    EXPECT_EQ(file.packed_precision(Precision::int4, six), Precision::int8);
    EXPECT_EQ(file.packed_precision(Precision::int8, four), Precision::int8);
    EXPECT_EQ(file.packed_precision(Precision::bf16, six), Precision::bf16);
    file.quantisation = "Q6_K";
    EXPECT_EQ(file.packed_precision(Precision::int4, six), Precision::int4);
}

TEST(ModelFile, SyntheticTargetsHaveTheirModelsDimensions) {
    const auto eight = require(open_model_file("synthetic:llama-3.1-8b"));
    EXPECT_EQ(eight.config.name, "synthetic:llama-3.1-8b");
    EXPECT_FALSE(eight.quantised);
    double weights = 0;
    for (const std::string& name : eight.weights->names()) {
        const TensorInfo& info = *eight.weights->find(name);
        weights += static_cast<double>(info.rows()) * static_cast<double>(info.cols());
    }
    EXPECT_EQ(weights, 8030261248.0);  // published

    const auto olmo = require(open_model_file("synthetic:olmo2-1b"));
    weights = 0;
    for (const std::string& name : olmo.weights->names()) {
        const TensorInfo& info = *olmo.weights->find(name);
        weights += static_cast<double>(info.rows()) * static_cast<double>(info.cols());
    }
    EXPECT_EQ(weights, 1484916736.0);  // published

    const auto qwen = require(open_model_file("synthetic:qwen3-4b"));
    EXPECT_EQ(qwen.config.vocab, 151936);
    EXPECT_EQ(qwen.tokenizer->size(), 151669);
    EXPECT_EQ(qwen.tokenizer->decode(qwen.tokenizer->encode("any text", true)), "any text");
    EXPECT_EQ(qwen.tokenizer->token_bytes(4711), "[4711]");

    const auto unknown = open_model_file("synthetic:llama-9");
    ASSERT_FALSE(unknown.ok());
    EXPECT_NE(unknown.error().message.find("unknown synthetic target; choose one of llama-3-8b, "),
              std::string::npos);
}

/// Checks every name against its published config, and parameter counts of complete models.
TEST(ModelFile, EverySyntheticTargetHasItsShapes) {
    struct Known {
        const char* name;
        const char* architecture;
        int vocab, hidden, heads, kv_heads, head_dim, drafter_ffn;
        double parameters;  ///< 0: stand-in layers replace a mixture of experts
    };
    const Known all[] = {
        {"llama-3-8b", "llama", 128256, 4096, 32, 8, 128, 14336, 8030261248.0},
        {"llama-3.1-8b", "llama", 128256, 4096, 32, 8, 128, 14336, 8030261248.0},
        {"llama-3.2-1b", "llama", 128256, 2048, 32, 8, 64, 8192, 1235814400.0},
        {"qwen2-7b", "qwen2", 152064, 3584, 28, 4, 128, 18944, 7615616512.0},
        {"qwen3-4b", "qwen3", 151936, 2560, 32, 8, 128, 9728, 4022468096.0},
        {"qwen3-8b", "qwen3", 151936, 4096, 32, 8, 128, 12288, 8190735360.0},
        {"olmo2-1b", "olmo2", 100352, 2048, 16, 16, 128, 8192, 1484916736.0},
        {"olmo2-7b", "olmo2", 100352, 4096, 32, 32, 128, 11008, 7298617344.0},
        {"gpt-oss-20b", "llama", 201088, 2880, 64, 8, 64, 17280, 0},
        {"qwen3-30b-a3b", "qwen3", 151936, 2048, 32, 4, 128, 12288, 0},
    };
    for (const Known& known : all) {
        const std::string spec = std::string("synthetic:") + known.name;
        const auto file = require(open_model_file(spec));
        const ModelConfig& config = file.config;
        EXPECT_EQ(config.vocab, known.vocab) << spec;
        EXPECT_EQ(config.hidden, known.hidden) << spec;
        EXPECT_EQ(config.heads, known.heads) << spec;
        EXPECT_EQ(config.kv_heads, known.kv_heads) << spec;
        EXPECT_EQ(config.head_dim, known.head_dim) << spec;
        EXPECT_EQ(synthetic_drafter_ffn(spec), known.drafter_ffn) << spec;
        EXPECT_EQ(config.name, known.parameters > 0 ? spec : spec + " (stand-in layers)");
        if (known.parameters == 0) continue;
        double weights = 0;
        for (const std::string& name : file.weights->names()) {
            const TensorInfo& info = *file.weights->find(name);
            weights += static_cast<double>(info.rows()) * static_cast<double>(info.cols());
        }
        EXPECT_EQ(weights, known.parameters) << spec;
    }
}

TEST(ModelFile, LimitsSyntheticTargetsToTheirFirstLayers) {
    const auto four = require(open_model_file("synthetic:llama-3.1-8b/4"));
    EXPECT_EQ(four.config.layers, 4);
    EXPECT_EQ(four.config.name, "synthetic:llama-3.1-8b/4 (4 of 32 layers)");
    EXPECT_NE(four.weights->find("blk.3.attn_q.weight"), nullptr);
    EXPECT_EQ(four.weights->find("blk.4.attn_q.weight"), nullptr);
    EXPECT_EQ(synthetic_drafter_ffn("synthetic:gpt-oss-20b/2"), 17280);
    EXPECT_EQ(open_model_file("synthetic:gpt-oss-20b/2")->config.name,
              "synthetic:gpt-oss-20b/2 (stand-in layers) (2 of 6 layers)");
    for (const char* bad : {"synthetic:llama-3.1-8b/0", "synthetic:llama-3.1-8b/33",
                            "synthetic:llama-3.1-8b/", "synthetic:llama-3.1-8b/2x"}) {
        const auto refused = open_model_file(bad);
        ASSERT_FALSE(refused.ok()) << bad;
        EXPECT_NE(refused.error().message.find("use synthetic:llama-3.1-8b/1 to /32"), std::string::npos)
            << refused.error().message;
    }
}

TEST(ModelFile, SyntheticWeightsDependOnlyOnTheirPosition) {
    const auto first = open_model_file("synthetic:qwen2-7b");
    const auto second = open_model_file("synthetic:qwen2-7b");
    ASSERT_TRUE(first.ok() && second.ok());
    const TensorInfo& info = *first->weights->find("blk.3.attn_k.weight");
    std::vector<float> a(static_cast<std::size_t>(info.cols())), b(a.size()), c(a.size());
    first->weights->read_row(info, 5, a.data());
    second->weights->read_row(*second->weights->find(info.name), 6, c.data());
    second->weights->read_row(*second->weights->find(info.name), 5, b.data());
    EXPECT_EQ(a, b);
    EXPECT_NE(a, c);
    double squares = 0, sum = 0;
    for (const float value : a) {
        squares += static_cast<double>(value) * value;
        sum += value;
    }
    // Outputs have unit size for inputs of unit size.
    EXPECT_NEAR(squares, 1.0, 0.1);
    EXPECT_LT(std::abs(sum), 4.0);
}

}  // namespace
}  // namespace draftscope
