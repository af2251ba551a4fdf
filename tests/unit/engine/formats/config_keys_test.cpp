// Configs as each writer of target models writes them. Each must open without a note, each field that the
// table calls read must be read, and docs/FORMATS.md must name every field.
#include "engine/formats/config_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/mapped_file.h"
#include "engine/formats/hf_folder.h"
#include "tests/support/results.h"
#include "tests/support/scratch_folder.h"

namespace draftscope {
namespace {

using Json = nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// The error of read_hf_config(); "" = read. Notes go to `notes`.
std::string read(const Json& config, Notes* notes = nullptr) {
    const testing::ScratchFolder scratch;
    testing::write_text(scratch.file("config.json"), config.dump());
    const JsonFile file = require(JsonFile::read(scratch.file("config.json"), "this test"));
    Notes found;
    const auto result = read_hf_config(file, found);
    if (notes != nullptr) *notes = found;
    return result.ok() ? "" : result.error().message;
}

Json shape(const char* architecture, const char* type) {
    return {{"architectures", {architecture}},
            {"model_type", type},
            {"vocab_size", 320},
            {"hidden_size", 64},
            {"intermediate_size", 96},
            {"num_hidden_layers", 2},
            {"num_attention_heads", 4},
            {"num_key_value_heads", 2},
            {"hidden_act", "silu"},
            {"max_position_embeddings", 32768},
            {"rms_norm_eps", 1e-6},
            {"tie_word_embeddings", false},
            {"use_cache", true},
            {"initializer_range", 0.02},
            {"attention_dropout", 0.0},
            {"bos_token_id", 1},
            {"eos_token_id", {2, 3}},
            {"pad_token_id", nullptr}};
}
Json with(Json config, const Json& more) {
    config.update(more);
    return config;
}

/// Fields that transformers 4 wrote before it left out those equal to defaults.
const Json old_defaults = {{"return_dict", true},
                           {"output_hidden_states", false},
                           {"output_attentions", false},
                           {"torchscript", false},
                           {"torch_dtype", "bfloat16"},
                           {"use_bfloat16", false},
                           {"tf_legacy_loss", false},
                           {"pruned_heads", Json::object()},
                           {"chunk_size_feed_forward", 0},
                           {"is_encoder_decoder", false},
                           {"is_decoder", false},
                           {"cross_attention_hidden_size", nullptr},
                           {"add_cross_attention", false},
                           {"tie_encoder_decoder", false},
                           {"max_length", 20},
                           {"min_length", 0},
                           {"do_sample", false},
                           {"early_stopping", false},
                           {"num_beams", 1},
                           {"num_beam_groups", 1},
                           {"diversity_penalty", 0.0},
                           {"temperature", 1.0},
                           {"top_k", 50},
                           {"top_p", 1.0},
                           {"typical_p", 1.0},
                           {"repetition_penalty", 1.0},
                           {"length_penalty", 1.0},
                           {"no_repeat_ngram_size", 0},
                           {"encoder_no_repeat_ngram_size", 0},
                           {"bad_words_ids", nullptr},
                           {"num_return_sequences", 1},
                           {"output_scores", false},
                           {"return_dict_in_generate", false},
                           {"forced_bos_token_id", nullptr},
                           {"remove_invalid_values", false},
                           {"finetuning_task", nullptr},
                           {"id2label", {{"0", "LABEL_0"}}},
                           {"label2id", {{"LABEL_0", 0}}},
                           {"tokenizer_class", nullptr},
                           {"prefix", nullptr},
                           {"_name_or_path", "some/model"},
                           {"transformers_version", "4.31.0"},
                           {"auto_map", Json::object()}};

struct Writer {
    const char* name;
    Json config;
};
std::vector<Writer> writers() {
    const Json llama = shape("LlamaForCausalLM", "llama"), qwen2 = shape("Qwen2ForCausalLM", "qwen2"),
               qwen3 = shape("Qwen3ForCausalLM", "qwen3"), olmo2 = shape("Olmo2ForCausalLM", "olmo2"),
               mistral = shape("MistralForCausalLM", "mistral");
    const Json rope4 = {{"rope_theta", 1e6}, {"rope_scaling", nullptr}, {"transformers_version", "4.57.6"}};
    const Json rope5 = {{"rope_parameters", {{"rope_theta", 1e6}, {"rope_type", "default"}}},
                        {"dtype", "bfloat16"},
                        {"transformers_version", "5.24.0"}};
    const Json biases = {
        {"attention_bias", false}, {"mlp_bias", false}, {"head_dim", 16}, {"pretraining_tp", 1}};
    const Json windows = {
        {"use_sliding_window", false}, {"sliding_window", nullptr}, {"max_window_layers", 28}};
    const Json types = {{"layer_types", {"full_attention", "full_attention"}}};
    return {
        {"llama, transformers 4.57", with(with(llama, rope4), biases)},
        {"llama, transformers 5.24", with(with(llama, rope5), biases)},
        {"llama, transformers 4.31", with(with(with(llama, rope4), biases), old_defaults)},
        {"llama 3.1, Meta", with(llama, {{"rope_theta", 5e5},
                                         {"rope_scaling",
                                          {{"factor", 8.0},
                                           {"low_freq_factor", 1.0},
                                           {"high_freq_factor", 4.0},
                                           {"original_max_position_embeddings", 8192},
                                           {"rope_type", "llama3"}}}})},
        {"SmolLM2", with(with(llama, biases), {{"is_llama_config", true},
                                               {"rope_interleaved", false},
                                               {"rope_scaling", nullptr},
                                               {"rope_theta", 100000},
                                               {"transformers.js_config", {{"dtype", "q4"}}}})},
        {"unsloth",
         with(with(with(llama, rope4), biases), {{"unsloth_fixed", true}, {"unsloth_version", "2026.1.1"}})},
        {"qwen2, transformers 4.57", with(with(with(qwen2, rope4), windows), types)},
        {"qwen2, transformers 5.24", with(with(with(qwen2, rope5), windows), types)},
        {"qwen2.5, Qwen", with(qwen2, {{"rope_theta", 1e6},
                                       {"use_sliding_window", false},
                                       {"sliding_window", 4096},
                                       {"max_window_layers", 21},
                                       {"use_mrope", false}})},
        {"qwen2.5 with YaRN, Qwen's card",
         with(qwen2, {{"rope_scaling",
                       {{"factor", 4.0}, {"original_max_position_embeddings", 32768}, {"type", "yarn"}}}})},
        {"qwen3, transformers 4.57",
         with(with(with(qwen3, rope4), windows), {{"head_dim", 16}, {"attention_bias", false}})},
        {"qwen3, transformers 5.24",
         with(with(with(with(qwen3, rope5), windows), types), {{"head_dim", 16}, {"attention_bias", false}})},
        {"olmo2, transformers 4.57", with(with(olmo2, rope4), {{"attention_bias", false}})},
        {"olmo2, transformers 5.24", with(with(olmo2, rope5), {{"attention_bias", false}})},
        {"mistral, transformers 4.57",
         with(with(mistral, rope4), {{"head_dim", 16}, {"sliding_window", nullptr}})},
        {"mistral, transformers 5.24",
         with(with(mistral, rope5), {{"head_dim", 16}, {"sliding_window", nullptr}})},
    };
}

TEST(ConfigKeys, ConfigsOfEachWriterHaveNoUnknownField) {
    for (const Writer& writer : writers()) {
        Notes notes;
        EXPECT_EQ(read(writer.config, &notes), "") << writer.name;
        EXPECT_THAT(notes, IsEmpty()) << writer.name;
    }
}

TEST(ConfigKeys, EachFieldThatTheTableCallsReadIsRead) {
    const Json config = writers().front().config;
    for (const ConfigKey& key : target_keys) {
        const std::string name(key.name);
        // Read with the tokenizer, and by YaRN alone.
        if (key.use != KeyUse::read || name == "eos_token_id" || name == "original_max_position_embeddings")
            continue;
        EXPECT_THAT(read(with(config, {{name, Json::array({1})}})), HasSubstr(name));
    }
}

TEST(ConfigKeys, FixedFieldsAreRefusedWithAnotherValue) {
    const Json config = writers().front().config;
    for (const auto& table : {target_keys, transformers_keys})
        for (const ConfigKey& key : table) {
            if (key.use != KeyUse::fixed) continue;
            const std::string name(key.name);
            EXPECT_THAT(read(with(config, {{name, 7.5}})), HasSubstr(name + " is 7.5, which this version"))
                << name;
            EXPECT_EQ(read(with(config, {{name, nullptr}})), "") << name;
        }
    EXPECT_EQ(
        read(with(config, {{"logits_scaling", 1.0}, {"num_experts", 0}, {"no_rope_layers", Json::array()}})),
        "");
}

TEST(ConfigKeys, UnknownFieldsAreSaid) {
    Notes notes;
    EXPECT_EQ(
        read(with(writers().front().config, {{"new_scale", 0.5}, {"other", nullptr}, {"a\nb", "x"}}), &notes),
        "");
    EXPECT_THAT(notes, ElementsAre(HasSubstr("may change results: a\\x0ab = \"x\", new_scale = 0.5")));
}

TEST(ConfigKeys, LayerTypesAreChecked) {
    const Json qwen = with(shape("Qwen2ForCausalLM", "qwen2"), {{"sliding_window", 4096}});
    const auto types = [&](const Json& list) { return read(with(qwen, {{"layer_types", list}})); };
    EXPECT_EQ(types({"full_attention", "full_attention"}), "");
    EXPECT_THAT(types({"full_attention", "sliding_attention"}),
                HasSubstr("layer_types contains \"sliding_attention\""));
    EXPECT_THAT(types({"full_attention", "linear_attention"}),
                HasSubstr("layer_types contains \"linear_attention\""));
    EXPECT_THAT(types("full_attention"), HasSubstr("expected a list"));
}

TEST(ConfigKeys, TheDocumentationNamesEveryField) {
    const std::string text = testing::read_text(std::string(DS_SOURCE_DIR) + "/docs/FORMATS.md");
    for (const auto& table :
         {target_keys, transformers_keys, gguf_model_keys, gguf_tokenizer_keys, gguf_general_keys})
        for (const ConfigKey& key : table) EXPECT_THAT(text, HasSubstr("`" + std::string(key.name) + "`"));
}

}  // namespace
}  // namespace draftscope
