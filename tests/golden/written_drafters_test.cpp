#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <random>

#include "engine/draft/registry.h"
#include "engine/formats/safetensors_writer.h"
#include "engine/formats/tensor_file.h"
#include "tests/golden/drafter_fixture.h"
#include "tests/support/scratch_folder.h"

/// The tensors of each published writer's files, by name and shape. A file is read without an unread tensor,
/// or refused by name.
namespace draftscope {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using Json = nlohmann::json;
using Shape = std::vector<std::int64_t>;
using Tensors = std::map<std::string, Shape>;

/// Sizes of the target and of its drafters.
constexpr int d = 48, vocab = 312, draft_vocab = 64, q_width = 48, kv_width = 16, ffn = 64;

Tensors operator+(Tensors a, const Tensors& b) {
    a.insert(b.begin(), b.end());
    return a;
}

/// A llama layer, whose q, k and v read `inputs` values.
Tensors layer(const std::string& prefix, int inputs) {
    return {{prefix + "self_attn.q_proj.weight", {q_width, inputs}},
            {prefix + "self_attn.k_proj.weight", {kv_width, inputs}},
            {prefix + "self_attn.v_proj.weight", {kv_width, inputs}},
            {prefix + "self_attn.o_proj.weight", {d, q_width}},
            {prefix + "mlp.gate_proj.weight", {ffn, d}},
            {prefix + "mlp.up_proj.weight", {ffn, d}},
            {prefix + "mlp.down_proj.weight", {d, ffn}},
            {prefix + "post_attention_layernorm.weight", {d}}};
}

Tensors eagle2(const std::string& prefix = "layers.0.") {
    return layer(prefix, d) + Tensors{{"fc.weight", {d, 2 * d}}, {"embed_tokens.weight", {vocab, d}}};
}

Tensors eagle3(const std::string& prefix) {
    return layer(prefix, 2 * d) + Tensors{{prefix + "hidden_norm.weight", {d}},
                                          {prefix + "input_layernorm.weight", {d}},
                                          {"fc.weight", {d, 3 * d}},
                                          {"norm.weight", {d}},
                                          {"lm_head.weight", {draft_vocab, d}},
                                          {"d2t", {draft_vocab}}};
}
const Tensors marks = {{"t2d", {vocab}}};
const Tensors embedding = {{"embed_tokens.weight", {vocab, d}}};

/// Heads of Medusa and Hydra. {0} is the head, {1} the block or the number of blocks.
Tensors heads(const std::string& block, const std::string& lm_head, bool bias = true, bool hydra = false) {
    Tensors out;
    for (int h = 0; h < 3; ++h) {
        for (int b = 0; b < 2; ++b) {
            const std::string name = fmt::format(fmt::runtime(block), h, b);
            const std::int64_t inputs = hydra && b == 0 ? (h + 2) * d : d;
            out[name + "weight"] = {d, inputs};
            if (bias) out[name + "bias"] = {d};
        }
        if (!lm_head.empty()) out[fmt::format(fmt::runtime(lm_head), h, 2)] = {vocab, d};
    }
    return out;
}

/// Fields of an EAGLE layer's config.
const Json layer_config = {{"model_type", "llama"},  {"hidden_size", d},         {"intermediate_size", ffn},
                           {"num_hidden_layers", 1}, {"num_attention_heads", 3}, {"num_key_value_heads", 1},
                           {"hidden_act", "silu"},   {"vocab_size", vocab},      {"rms_norm_eps", 1e-5}};

Json with(Json config, const Json& more) {
    config.update(more);
    return config;
}
Json of_class(const char* name) {
    return with(layer_config, {{"architectures", {name}}});
}
/// `type`: speculators' model type.
Json speculators(const char* type, const Json& more = Json::object()) {
    return with({{"speculators_model_type", type},
                 {"transformer_layer_config", with(layer_config, {{"head_dim", 16}})},
                 {"draft_vocab_size", draft_vocab},
                 {"eagle_aux_hidden_state_layer_ids", {0, 1, 2}},
                 {"speculators_config", {{"algorithm", type}}}},
                more);
}

/// What a writer writes. `source`: the file that names the tensors, or "memory" if it was not at hand.
struct Written {
    const char* writer;
    const char* source;
    const char* drafter;
    Json config;
    Tensors tensors;
    const char* message = "";  ///< part of the refusal; "" = the file is read
};

const Json specforge = with(
    of_class("LlamaForCausalLMEagle3"),
    {{"draft_vocab_size", draft_vocab}, {"eagle_config", {{"eagle_aux_hidden_state_layer_ids", {0, 1, 1}}}}});
const Json official =
    with(layer_config, {{"draft_vocab_size", draft_vocab}, {"eagle_aux_hidden_state_layer_ids", {0, 1, 2}}});

std::vector<Written> read_files() {
    return {
        {"SafeAILab EAGLE-1, EAGLE-2", "eagle/model/cnets1.py", "eagle2",
         with(layer_config, {{"bias", false}}), eagle2()},
        {"SafeAILab EAGLE-1 with biases", "eagle/model/cnets1.py", "eagle2", layer_config,
         eagle2() + Tensors{{"fc.bias", {d}},
                            {"layers.0.self_attn.q_proj.bias", {q_width}},
                            {"layers.0.self_attn.k_proj.bias", {kv_width}},
                            {"layers.0.self_attn.v_proj.bias", {kv_width}}}},
        {"SafeAILab EAGLE-3", "eagle/traineagle3/cnets.py", "eagle3", official, eagle3("midlayer.") + marks},
        {"SafeAILab EAGLE-3 with its embeddings", "eagle/model/cnets.py", "eagle3", official,
         eagle3("midlayer.") + marks + embedding},
        {"SpecForge, to SGLang", "specforge/export/to_sglang.py", "eagle3", specforge,
         eagle3("midlayer.") + marks},
        {"SpecForge, to transformers, fc_norm", "specforge/modeling/draft/llama3_eagle.py", "eagle3",
         with(specforge, {{"fc_norm", true}}),
         eagle3("midlayer.") + marks + embedding +
             Tensors{{"fc_norm.0.weight", {d}}, {"fc_norm.1.weight", {d}}, {"fc_norm.2.weight", {d}}}},
        {"speculators EAGLE", "memory", "eagle2",
         speculators("eagle", {{"layernorms", false}, {"fusion_bias", true}}),
         layer("transformer.", d) + Tensors{{"fusion_fc.weight", {d, 2 * d}}, {"fusion_fc.bias", {d}}}},
        {"speculators EAGLE-3", "src/speculators/models/eagle3/core.py", "eagle3", speculators("eagle3"),
         eagle3("layers.0.") + marks + embedding},
        {"speculators EAGLE-3, norm_before_fc", "src/speculators/models/eagle3/core.py", "eagle3",
         speculators("eagle3", {{"norm_before_fc", true}}),
         eagle3("layers.0.") + marks + Tensors{{"input_norm.weight", {3 * d}}}},
        {"speculators EAGLE-3 with the target's copies", "memory", "eagle3", speculators("eagle3"),
         eagle3("layers.0.") + marks + embedding +
             Tensors{{"verifier_lm_head.weight", {draft_vocab, d}}, {"verifier_norm.weight", {d}}}},
        {"Model-Optimizer", "modelopt/torch/export/plugins/hf_spec_export.py", "eagle3",
         with(specforge, {{"head_dim", 16}}), eagle3("layers.0.")},
        {"Model-Optimizer from Megatron, NeMo", "modelopt/torch/export/plugins/mcore_llama.py", "eagle3",
         specforge, eagle3("midlayer.") + embedding},
        {"AngelSlim", "angelslim/compressor/speculative/train/models/draft/llama_eagle3.py", "eagle3",
         with(of_class("Eagle3LlamaForCausalLM"),
              {{"draft_vocab_size", draft_vocab}, {"eagle_aux_hidden_state_layer_ids", {0, 1, 2}}}),
         eagle3("midlayer.") + marks},
        {"FasterDecoding Medusa",
         "medusa/model/medusa_model.py",
         "medusa",
         {{"medusa_num_heads", 3}},
         heads("{}.{}.linear.", "{}.{}.weight")},
        {"FasterDecoding Medusa, legacy",
         "medusa/train/train_legacy.py",
         "medusa",
         {{"medusa_num_heads", 3}},
         heads("medusa_head.{}.{}.linear.", "medusa_head.{}.{}.weight")},
        {"text-generation-inference Medusa, second version",
         "text_generation_server/layers/medusa.py",
         "medusa",
         {{"medusa_num_heads", 3}},
         heads("{}.{}.linear.", "")},
        {"Model-Optimizer Medusa",
         "modelopt/torch/speculative/plugins/hf_medusa.py",
         "medusa",
         {{"num_medusa_heads", 3}},
         heads("medusa_heads.{}.{}.linear.", "medusa_heads.{}.{}.weight")},
        {"TensorRT-LLM Medusa",
         "tensorrt_llm/models/medusa/weight.py",
         "medusa",
         {{"num_medusa_heads", 3}},
         heads("medusa_heads.{}.medusa_layers.{}.linear.", "medusa_heads.{}.lm_head.weight")},
        {"vLLM Medusa",
         "vllm/model_executor/models/medusa.py",
         "medusa",
         {{"model_type", "medusa"}, {"num_heads", 3}, {"truncated_vocab_size", vocab}},
         heads("blocks.{}.layers.{}.", "lm_heads.{}.weight", false)},
        {"Hydra",
         "hydra/model/hydra_heads/mlp_head.py",
         "hydra",
         {{"hydra_num_heads", 3}},
         heads("hydra_mlp.{}.{}.linear.", "hydra_lm_head.{}.weight", true, true) +
             Tensors{{"hydra_mlp.0.0.res_connection.weight", {d, 2 * d}},
                     {"hydra_mlp.0.0.res_connection.bias", {d}},
                     {"hydra_lm_head.0.bias", {vocab}}}},
        {"rotation angles of old programs", "memory", "eagle2", layer_config,
         eagle2() + Tensors{{"layers.0.self_attn.rotary_emb.inv_freq", {8}}}},
        {"an LM head in an EAGLE-2 file", "modelopt/torch/export/plugins/hf_spec_export.py", "eagle2",
         layer_config, eagle2() + Tensors{{"lm_head.weight", {vocab, d}}}},
    };
}

std::vector<Written> refused_files() {
    const Tensors two_layers = layer("layers.0.", d) + layer("layers.1.", d) + Tensors{{"norm.weight", {d}}};
    const Tensors masks = {{"mask_hidden", {1, 1, 3 * d}}};
    return {
        {"speculators P-EAGLE", "src/speculators/models/peagle/core.py", "eagle3", speculators("peagle"),
         eagle3("layers.0.") + masks, "family P-EAGLE (algorithm is"},
        {"SpecForge P-EAGLE", "specforge/modeling/draft/peagle.py", "eagle3", layer_config,
         eagle3("layers.0.") + masks, "family P-EAGLE (it has tensor 'mask_hidden')"},
        {"speculators DFlash", "src/speculators/models/dflash/core.py", "eagle3", speculators("dflash"),
         two_layers + Tensors{{"fc.weight", {d, 3 * d}}, {"hidden_norm.weight", {d}}}, "family DFlash"},
        {"SpecForge DFlash", "specforge/modeling/draft/dflash.py", "eagle3", of_class("DFlashDraftModel"),
         two_layers + Tensors{{"fc.weight", {d, 3 * d}}, {"hidden_norm.weight", {d}}}, "family DFlash"},
        {"speculators DSpark", "src/speculators/models/dspark/core.py", "eagle3", speculators("dspark"),
         two_layers + Tensors{{"markov_head.markov_w1.weight", {vocab, 8}}}, "family DSpark"},
        {"SpecForge Domino", "specforge/modeling/draft/domino.py", "eagle3", layer_config,
         two_layers + Tensors{{"prefix_gru.weight_ih_l0", {8, 8}}}, "family Domino"},
        {"speculators MTP", "src/speculators/models/mtp/core.py", "eagle3", speculators("mtp"),
         layer("mtp_layers.0.", d) + Tensors{{"mtp_layers.0.input_proj.weight", {d, 2 * d}}}, "family MTP"},
        {"a target's own MTP layer", "memory", "eagle3", layer_config,
         layer("model.layers.61.", d) + Tensors{{"model.layers.61.eh_proj.weight", {d, 2 * d}}},
         "family MTP"},
        {"Model-Optimizer with parallel heads", "modelopt/torch/export/plugins/hf_spec_export.py", "eagle3",
         specforge,
         eagle3("layers.0.") + Tensors{{"parallel_draft_heads.0.medusa_layers.0.linear.weight", {d, d}},
                                       {"parallel_draft_heads.lm_head.weight", {draft_vocab, d}}},
         "family EAGLE with parallel heads"},
        {"Model-Optimizer, Kimi K2",
         "modelopt/torch/export/plugins/hf_spec_export.py",
         "eagle3",
         of_class("Eagle3DeepseekV2ForCausalLM"),
         {{"layers.0.self_attn.kv_a_proj_with_mqa.weight", {d, d}}, {"fc.weight", {d, 3 * d}}},
         "family EAGLE with latent attention"},
        {"Model-Optimizer, two layers", "modelopt/torch/export/plugins/hf_spec_export.py", "eagle3",
         with(specforge, {{"num_hidden_layers", 2}}), eagle3("layers.0.") + layer("layers.1.", d),
         "num_hidden_layers is 2"},
        {"Model-Optimizer from Megatron, EAGLE-1", "modelopt/torch/export/plugins/mcore_llama.py", "eagle2",
         layer_config, eagle2() + Tensors{{"enorm.weight", {d}}, {"hnorm.weight", {d}}},
         "tensor 'enorm.weight' is not supported in EAGLE-2"},
        {"Model-Optimizer, quantised", "memory", "eagle3", specforge,
         eagle3("layers.0.") + Tensors{{"layers.0.self_attn.q_proj.weight_scale", {1}}},
         "tensor 'layers.0.self_attn.q_proj.weight_scale' is not supported in EAGLE-3"},
        {"vLLM MLP speculator, text-generation-inference",
         "memory",
         "medusa",
         Json::object(),
         {{"speculator.emb.0.weight", {vocab, d}}, {"speculator.proj.0.weight", {d, d}}},
         "family MLP speculator"},
        {"Hydra++", "hydra/model/hydra_heads/prefix_mlp_head.py", "hydra", Json::object(),
         heads("hydra_mlp.{}.{}.linear.", "hydra_lm_head.{}.weight", true, true) +
             layer("prefix_embeding_layer.", d),
         "Hydra's prefix attention"},
        {"Hydra with an EAGLE head",
         "hydra/model/hydra_heads/eagle_head.py",
         "hydra",
         {{"hydra_head_arch", "eagle-attn"}},
         layer("hydra_head.attn.", d) + Tensors{{"fc.weight", {d, 2 * d}}},
         "hydra_head_arch is \"eagle-attn\""},
        {"a LoRA of the target",
         "memory",
         "eagle3",
         layer_config,
         {{"base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight", {8, d}}},
         "family LoRA"},
    };
}

class WrittenDrafters : public GoldenDrafters {
  protected:
    /// Writes random weights. Maps hold offsets of 0, marks the first tokens.
    std::string write(const Written& file, const Tensors& tensors, int shards = 1) {
        const std::string folder = scratch_.file(fmt::format("drafter{}", written_++));
        std::filesystem::create_directories(folder);
        testing::write_text(folder + "/config.json", file.config.dump());
        std::vector<std::vector<TensorToSave>> parts(shards);
        std::map<std::string, std::vector<float>> values;
        std::map<std::string, std::vector<std::int64_t>> integers;
        Json map = Json::object();
        std::mt19937 random(3);
        std::normal_distribution<float> normal(0, 0.1f);
        for (const auto& [name, shape] : tensors) {
            std::size_t size = 1;
            for (const std::int64_t extent : shape) size *= extent;
            const std::size_t part = map.size() % shards;
            map[name] = fmt::format("model-{:05}-of-{:05}.safetensors", part + 1, shards);
            TensorToSave saved{name, "F32", shape, {}};
            if (name == "d2t" || name == "t2d") {
                integers[name].resize(size);
                if (name == "t2d") std::fill_n(integers[name].begin(), std::min<std::size_t>(size, 64), 1);
                saved.type = "I64";
                saved.data = std::as_bytes(std::span(integers[name]));
            } else {
                values[name].resize(size);
                for (float& one : values[name]) one = normal(random);
                saved.data = std::as_bytes(std::span(values[name]));
            }
            parts[part].push_back(std::move(saved));
        }
        for (int part = 0; part < shards; ++part)
            EXPECT_TRUE(is_ok(save_safetensors(
                folder + (shards == 1 ? "/model.safetensors"
                                      : fmt::format("/model-{:05}-of-{:05}.safetensors", part + 1, shards)),
                parts[part])));
        if (shards > 1)
            testing::write_text(folder + "/model.safetensors.index.json", Json{{"weight_map", map}}.dump());
        return fmt::format("{}:{}", file.drafter, folder);
    }
    /// Returns the refusal, or the notes in one line.
    std::string outcome(const Written& file, const Tensors& tensors) {
        auto drafter = make_drafter(write(file, tensors), "", *target_, *exec_);
        if (!drafter.ok()) {
            EXPECT_EQ(drafter.error().kind, ErrorKind::bad_input);
            return "refused: " + drafter.error().message;
        }
        std::string notes;
        for (const std::string& note : (*drafter)->properties().notes)
            notes += note.substr(note.find(": ")) + "\n";
        return notes;
    }

    testing::ScratchFolder scratch_;
    int written_ = 0;
};

/// A tensor that nobody reads has no wrong shape. Those of docs/FORMATS.md's table may be such.
TEST_F(WrittenDrafters, EveryTensorIsReadOrNamed) {
    const std::string text = testing::read_text(std::string(DS_SOURCE_DIR) + "/docs/FORMATS.md");
    const std::size_t begin = text.find("### Tensors of a drafter that are not read");
    ASSERT_NE(begin, std::string::npos);
    const std::string table = text.substr(begin, text.find("\n## ", begin) - begin);
    for (const Written& file : read_files()) {
        SCOPED_TRACE(file.writer);
        const std::string usual = outcome(file, file.tensors);
        EXPECT_THAT(usual, ::testing::Not(HasSubstr("refused"))) << file.source;
        for (const auto& [name, shape] : file.tensors) {
            Tensors changed = file.tensors;
            changed[name] = {5, 7};
            if (outcome(file, changed) != usual) continue;
            const std::string last = name.substr(name.rfind('.', name.rfind('.') - 1) + 1);
            EXPECT_TRUE(table.find("`" + name + "`") != std::string::npos ||
                        table.find("`" + last + "`") != std::string::npos)
                << name << " is not read, and docs/FORMATS.md does not say so";
        }
        EXPECT_THAT(outcome(file, file.tensors + Tensors{{"strange.weight", {d}}}),
                    HasSubstr("tensor 'strange.weight' is not supported"));
    }
}

TEST_F(WrittenDrafters, OthersAreRefusedByName) {
    for (const Written& file : refused_files()) {
        SCOPED_TRACE(file.writer);
        EXPECT_THAT(outcome(file, file.tensors), HasSubstr(file.message)) << file.source;
    }
}

TEST_F(WrittenDrafters, ShardsDraftAsOneFile) {
    for (const Written& file : read_files()) {
        SCOPED_TRACE(file.writer);
        const auto one = open(write(file, file.tensors)), many = open(write(file, file.tensors, 3));
        ASSERT_TRUE(one != nullptr && many != nullptr);
        EXPECT_EQ(one->properties().notes.size(), many->properties().notes.size());
        EXPECT_EQ(one->properties().weight_bytes, many->properties().weight_bytes);
        if (file.drafter != std::string("eagle3")) continue;
        const auto a = draft(*one, golden_["eagle3"]), b = draft(*many, golden_["eagle3"]);
        for (std::size_t r = 0; r < a.size(); ++r) EXPECT_EQ(a[r].tree.logprobs, b[r].tree.logprobs);
    }
}

TEST_F(WrittenDrafters, ShardsOfTorchDraftAsOneFile) {
    const std::string whole = std::string(DS_SOURCE_DIR) + "/tests/golden/drafters/eagle3_official",
                      folder = scratch_.file("torch"), part = "pytorch_model-00001-of-00001.bin";
    std::filesystem::copy(whole, folder);
    std::filesystem::rename(folder + "/pytorch_model.bin", folder + "/" + part);
    const auto weights = open_tensor_file(folder + "/" + part);
    ASSERT_TRUE(is_ok(weights));
    Json map;
    for (const std::string& name : (*weights)->names()) map[name] = part;
    testing::write_text(folder + "/pytorch_model.bin.index.json", Json{{"weight_map", map}}.dump());
    const auto one = open("eagle3:" + whole), many = open("eagle3:" + folder);
    ASSERT_TRUE(one != nullptr && many != nullptr);
    const auto a = draft(*one, golden_["eagle3"]), b = draft(*many, golden_["eagle3"]);
    ASSERT_FALSE(a.empty());
    for (std::size_t r = 0; r < a.size(); ++r) EXPECT_EQ(a[r].tree.logprobs, b[r].tree.logprobs);
}

TEST_F(WrittenDrafters, ShardsAreChecked) {
    const Written file = read_files().front();
    const std::string spec = write(file, file.tensors, 2), folder = spec.substr(spec.find(':') + 1);
    EXPECT_NE(open(spec + "/model.safetensors.index.json"), nullptr);
    const std::string second = folder + "/model-00002-of-00002.safetensors";
    std::filesystem::copy_file(second, folder + "/model.safetensors");
    EXPECT_THAT(open_error(spec), HasSubstr("is missing"));
    std::filesystem::remove(folder + "/model.safetensors");
    std::filesystem::remove(second);
    EXPECT_THAT(open_error(spec), HasSubstr("model-00002-of-00002.safetensors"));
    Json index = Json::parse(testing::read_text(folder + "/model.safetensors.index.json"));
    index["weight_map"]["fc.weight"] = "../fc.safetensors";
    testing::write_text(folder + "/model.safetensors.index.json", index.dump());
    EXPECT_THAT(open_error(spec), HasSubstr("expected a name in the folder"));
}

}  // namespace
}  // namespace draftscope
