// Rotations as each writer of config.json and GGUF files describes them. YaRN's values are those of
// transformers 5.24's formula, computed in Python.
#include "engine/formats/rope_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/formats/model_file.h"
#include "tests/support/results.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/tiny_model.h"

namespace draftscope {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// What read_hf_rope() makes of a config with heads of 16.
struct Read {
    RopeConfig rope;
    Notes notes;
    std::string error;
};
Read read(const std::string& config) {
    const testing::ScratchFolder scratch;
    testing::write_text(scratch.file("config.json"), config);
    const JsonFile file = require(JsonFile::read(scratch.file("config.json"), "this test"));
    Read out;
    auto rope = read_hf_rope(file, 16, out.notes);
    if (rope.ok())
        out.rope = std::move(*rope);
    else
        out.error = rope.error().message;
    return out;
}

const std::vector<float> four(8, 4.0f);
const std::vector<float> yarn_values = {1.0f, 1.3333334f, 2.0f, 4.0f, 4.0f, 4.0f, 4.0f, 4.0f};

struct Plain {
    const char* config;
    float theta;
};
// Each of these turns every pair by the base frequency.
TEST(RopeConfig, ReadsPlainRotations) {
    for (const Plain& one : {
             Plain{R"({})", 1e4f},
             Plain{R"({"rope_theta": 5e5})", 5e5f},
             Plain{R"({"rope_theta": 5e5, "rope_scaling": null})", 5e5f},
             Plain{R"({"rope_theta": 5e5, "rope_scaling": {}})", 5e5f},
             Plain{R"({"rope_parameters": {"rope_theta": 1e6, "rope_type": "default"}})", 1e6f},
             Plain{R"({"rope_theta": 1e6, "rope_parameters": {"rope_type": "default"}})", 1e6f},
             Plain{R"({"rope_parameters": {"full_attention": {"rope_theta": 1e6, "rope_type": "default"}}})",
                   1e6f},
             Plain{R"({"rope_theta": 1e6, "rope_parameters": {"full_attention": {"rope_type": "default"}}})",
                   1e6f},
             Plain{
                 R"({"rope_parameters": {"full_attention": {"rope_theta": 1e6}, "sliding_attention": null}})",
                 1e6f},
             Plain{R"({"rope_parameters": {"attention": {"rope_theta": 1e6}}})", 1e6f},
             Plain{R"({"rope_scaling": {"type": "default"}})", 1e4f},
             Plain{R"({"rope_scaling": {"factor": 1.0}})", 1e4f},
             Plain{R"({"rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]}})", 1e4f},
             Plain{
                 R"({"rope_scaling": {"type": "mrope", "rope_type": "default", "mrope_section": [2, 3, 3]}})",
                 1e4f},
             Plain{R"({"partial_rotary_factor": 1.0})", 1e4f},
         }) {
        SCOPED_TRACE(one.config);
        const Read found = read(one.config);
        EXPECT_EQ(found.error, "");
        EXPECT_EQ(found.rope.theta, one.theta);
        EXPECT_THAT(found.rope.divisors, IsEmpty());
        EXPECT_EQ(found.rope.scale, 1.0f);
        EXPECT_THAT(found.notes, IsEmpty());
    }
}

TEST(RopeConfig, ReadsScaledRotations) {
    for (const char* config : {
             R"({"rope_scaling": {"type": "linear", "factor": 4.0}})",
             R"({"rope_scaling": {"rope_type": "linear", "type": "linear", "factor": 4}})",
             R"({"rope_parameters": {"rope_theta": 1e4, "rope_type": "linear", "factor": 4.0}})",
             R"({"rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 4.0}}})",
             R"({"rope_theta": 1e4, "rope_scaling": {"type": "linear", "factor": 4.0},
                 "rope_parameters": {"rope_theta": 1e4, "rope_type": "linear", "factor": 4.0}})",
         }) {
        const Read found = read(config);
        EXPECT_EQ(found.error, "");
        EXPECT_EQ(found.rope.theta, 1e4f);
        EXPECT_EQ(found.rope.divisors, four);
        EXPECT_THAT(found.notes, IsEmpty()) << config;
    }
}

TEST(RopeConfig, ComputesYarn) {
    for (const char* config : {
             R"({"max_position_embeddings": 256, "rope_scaling":
                 {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}})",
             R"({"max_position_embeddings": 64, "rope_scaling": {"rope_type": "yarn", "factor": 4.0}})",
             R"({"max_position_embeddings": 256, "rope_parameters":
                 {"rope_theta": 1e4, "rope_type": "yarn", "original_max_position_embeddings": 64}})",
             R"({"max_position_embeddings": 256, "original_max_position_embeddings": 64,
                 "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "beta_fast": 32, "beta_slow": 1}})",
         }) {
        const Read found = read(config);
        EXPECT_EQ(found.error, "") << config;
        EXPECT_THAT(found.rope.divisors, ::testing::Pointwise(::testing::FloatEq(), yarn_values)) << config;
        EXPECT_THAT(found.rope.scale, FloatNear(1.1386294f, 1e-6f));
        EXPECT_THAT(found.notes, IsEmpty());
    }
    const char* deepseek = R"({"max_position_embeddings": 256, "rope_scaling":
        {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "mscale": 0.5, "mscale_all_dim": 1.0}})";
    EXPECT_THAT(read(deepseek).rope.scale, FloatNear(1.0693147f / 1.1386294f, 1e-6f));
    const char* given = R"({"max_position_embeddings": 256, "rope_scaling":
        {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "attention_factor": 1.5}})";
    EXPECT_EQ(read(given).rope.scale, 1.5f);
}

TEST(RopeConfig, AnOriginalContextOfTheWholeConfigComesFirst) {
    const auto llama3 = [](const std::string& outer) {
        return read("{" + outer +
                    R"("rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                    "high_freq_factor": 4.0, "original_max_position_embeddings": 64}})");
    };
    EXPECT_EQ(llama3("").error, "");
    EXPECT_EQ(llama3(R"("original_max_position_embeddings": 64, )").rope.divisors, llama3("").rope.divisors);
    EXPECT_NE(llama3(R"("original_max_position_embeddings": 512, )").rope.divisors, llama3("").rope.divisors);
}

// Qwen's published setting: 32 of 64 pairs keep or blend their frequency.
TEST(RopeConfig, ComputesYarnOfQwen) {
    const std::vector<float> divisors = yarn_divisors({4, 32768, 32, 1, true}, 1e6, 128);
    for (int j = 0; j <= 23; ++j) EXPECT_EQ(divisors[j], 1.0f) << j;
    EXPECT_FLOAT_EQ(divisors[24], 1.0461539f);
    EXPECT_FLOAT_EQ(divisors[39], 3.4f);
    for (int j = 40; j < 64; ++j) EXPECT_EQ(divisors[j], 4.0f) << j;
}

TEST(RopeConfig, SaysWhatItChose) {
    const Read schemas = read(R"({"rope_theta": 1e6, "rope_scaling": {"rope_type": "linear", "factor": 4.0},
                                  "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}})");
    EXPECT_EQ(schemas.rope.theta, 1e6f);
    EXPECT_EQ(schemas.rope.divisors, four);
    EXPECT_THAT(schemas.notes, ElementsAre(HasSubstr("rope_scaling and rope_theta give another rotation")));
    const Read bases = read(R"({"rope_theta": 1e6, "rope_parameters": {"rope_theta": 5e5}})");
    EXPECT_EQ(bases.rope.theta, 5e5f);
    EXPECT_THAT(bases.notes,
                ElementsAre(HasSubstr("rope_theta is 1000000, but rope_parameters.rope_theta 500000")));
    const Read layers = read(
        R"({"rope_parameters": {"full_attention": {"rope_theta": 1e6, "rope_type": "linear", "factor": 4},
                                 "sliding_attention": {"rope_theta": 1e4, "rope_type": "default"}}})");
    EXPECT_EQ(layers.rope.divisors, four);
    EXPECT_THAT(layers.notes, ElementsAre(HasSubstr("rope_parameters.sliding_attention is not used")));
    const Read dynamic = read(R"({"rope_scaling": {"type": "dynamic", "factor": 2.0}})");
    EXPECT_THAT(dynamic.rope.divisors, IsEmpty());
    EXPECT_THAT(dynamic.notes,
                ElementsAre(HasSubstr("rope_scaling.type is dynamic, which equals the plain rotation")));
    const Read factor = read(R"({"rope_scaling": {"rope_type": "default", "factor": 8.0}})");
    EXPECT_THAT(factor.rope.divisors, IsEmpty());
    EXPECT_THAT(factor.notes, ElementsAre(HasSubstr("factor is 8, which has no effect with type default")));
    const Read unknown = read(R"({"rope_scaling": {"rope_type": "linear", "factor": 4.0, "warp": 2}})");
    EXPECT_THAT(unknown.notes, ElementsAre(HasSubstr("rope_scaling.warp = 2")));
}

TEST(RopeConfig, RefusesWhatItDoesNotCompute) {
    for (const auto& [config, part] : {
             std::pair(R"({"rope_scaling": {"type": "longrope", "short_factor": [1], "long_factor": [2]}})",
                       "rope_scaling.type is \"longrope\", expected default, linear, llama3 or yarn"),
             {R"({"rope_scaling": {"type": "su", "factor": 2}})", "rope_scaling.type is \"su\""},
             {R"({"rope_parameters": {"full_attention": {"rope_type": "proportional", "rope_theta": 1e6}}})",
              "rope_parameters.full_attention.rope_type is \"proportional\""},
             {R"({"rope_scaling": {"factor": 4.0}})", "rope_scaling.rope_type is missing, expected a type"},
             {R"({"rope_scaling": {"type": "linear"}})", "rope_scaling.factor is missing"},
             {R"({"rope_scaling": {"type": "linear", "rope_type": "llama3", "factor": 2}})",
              "rope_scaling.type is \"linear\", expected llama3, as rope_type says"},
             {R"({"rope_scaling": {"type": "yarn", "factor": 2}})",
              "original_max_position_embeddings is missing"},
             {R"({"partial_rotary_factor": 0.5})", "partial_rotary_factor is 0.5, expected 1"},
             {R"({"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5}})",
              "rope_parameters.partial_rotary_factor is 0.5"},
             {R"({"rope_parameters": {"a": {"rope_theta": 1e4}, "b": {"rope_theta": 1e6}}})",
              "rope_parameters.full_attention is missing"},
             {R"({"rope_scaling": "linear"})", "rope_scaling is \"linear\", expected an object"},
         })
        EXPECT_THAT(read(config).error, HasSubstr(part)) << config;
}

/// The rotation of a tiny GGUF file (heads of 16, context 256) with further keys, or the error.
Read read_gguf(const std::function<void(testing::GgufWriter&)>& change) {
    const testing::ScratchFolder scratch;
    testing::GgufWriter file = testing::make_tiny_gguf(3);
    change(file);
    EXPECT_TRUE(is_ok(file.write(scratch.file("x.gguf"))));
    Read out;
    const auto opened = open_model_file(scratch.file("x.gguf"));
    if (!opened.ok()) {
        out.error = opened.error().message;
        return out;
    }
    out.rope = opened->config.rotation;
    out.notes = opened->notes;
    return out;
}

TEST(RopeConfig, ReadsGgufKeysOldAndNew) {
    using testing::GgufWriter;
    const auto none = read_gguf([](GgufWriter&) {});
    EXPECT_THAT(none.rope.divisors, IsEmpty());
    for (const char* key : {"llama.rope.scaling.factor", "llama.rope.scale_linear"}) {
        const Read found = read_gguf([&](GgufWriter& file) { file.add(key, 4.0f); });
        EXPECT_EQ(found.error, "");
        EXPECT_EQ(found.rope.divisors, four) << key;
        EXPECT_THAT(found.notes, IsEmpty());
    }
    const Read off = read_gguf([](GgufWriter& file) {
        file.add("llama.rope.scaling.type", std::string("none"));
        file.add("llama.rope.scaling.factor", 4.0f);
    });
    EXPECT_THAT(off.rope.divisors, IsEmpty());
    const Read yarn = read_gguf([](GgufWriter& file) {
        file.add("llama.rope.scaling.type", std::string("yarn"));
        file.add("llama.rope.scaling.factor", 4.0f);
        file.add("llama.rope.scaling.original_context_length", 64u);
        file.add("llama.rope.scaling.yarn_beta_fast", 32.0f);
    });
    EXPECT_EQ(yarn.error, "");
    EXPECT_THAT(yarn.rope.divisors, ::testing::Pointwise(::testing::FloatEq(), yarn_values));
    EXPECT_THAT(yarn.rope.scale, FloatNear(1.1386294f, 1e-6f));
    const Read scaled =
        read_gguf([](GgufWriter& file) { file.add("llama.rope.scaling.attn_factor", 1.25f); });
    EXPECT_EQ(scaled.rope.scale, 1.25f);
    const Read both = read_gguf([](GgufWriter& file) {
        std::string divisors;
        for (int j = 0; j < 8; ++j) divisors += testing::raw_bytes(j < 4 ? 1.0f : 8.0f);
        file.add_tensor("rope_freqs.weight", {8}, 0, divisors);
        file.add("llama.rope.scaling.type", std::string("linear"));
        file.add("llama.rope.scaling.factor", 2.0f);
    });
    EXPECT_THAT(both.rope.divisors, ElementsAre(2, 2, 2, 2, 16, 16, 16, 16));
}

TEST(RopeConfig, RefusesGgufKeysThatItDoesNotCompute) {
    using testing::GgufWriter;
    const auto with = [](const char* key, auto value) {
        return read_gguf([&](GgufWriter& file) { file.add(key, value); }).error;
    };
    EXPECT_THAT(with("llama.rope.scaling.type", std::string("longrope")),
                HasSubstr("'longrope', expected none, linear or yarn"));
    EXPECT_THAT(with("llama.rope.scaling.factor", -2.0f), HasSubstr("expected a positive number"));
    EXPECT_THAT(with("llama.rope.scaling.yarn_log_multiplier", 0.1f), HasSubstr("yarn_log_multiplier"));
    EXPECT_THAT(with("llama.attention.scale", 0.5f), HasSubstr("scales by 1 / sqrt(16)"));
    EXPECT_EQ(with("llama.attention.scale", 0.25f), "");
    EXPECT_THAT(with("llama.attention.sliding_window", 64u), HasSubstr("shorter than the context of 256"));
    EXPECT_EQ(with("llama.attention.sliding_window", 256u), "");
    for (const char* key :
         {"llama.logit_scale", "llama.embedding_scale", "llama.residual_scale",
          "llama.attn_logit_softcapping", "llama.final_logit_softcapping", "llama.attention.clamp_kqv"})
        EXPECT_THAT(with(key, 12.0f), HasSubstr(std::string(key) + " is 12")) << key;
    EXPECT_THAT(with("llama.expert_count", 8u), HasSubstr("llama.expert_count is 8"));
    EXPECT_THAT(with("llama.attention.causal", false), HasSubstr("llama.attention.causal is false"));
    EXPECT_EQ(with("llama.logit_scale", 1.0f), "");
    EXPECT_EQ(with("tokenizer.ggml.add_eos_token", true), "");
    EXPECT_THAT(with("tokenizer.ggml.add_sep_token", true),
                HasSubstr("tokenizer.ggml.add_sep_token is true"));
    EXPECT_THAT(with("general.type", std::string("adapter")), HasSubstr("general.type is \"adapter\""));
    const Read unknown = read_gguf([](GgufWriter& file) { file.add("llama.gate_limit", 7.0f); });
    EXPECT_THAT(unknown.notes, ElementsAre(HasSubstr("llama.gate_limit = 7")));
}

}  // namespace
}  // namespace draftscope
