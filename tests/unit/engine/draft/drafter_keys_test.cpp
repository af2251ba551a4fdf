#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/draft/drafter_files.h"
#include "tests/support/results.h"

namespace draftscope {
namespace {

using Json = nlohmann::json;

/// A config.json as a published writer writes it.
struct Written {
    const char* writer;
    const char* config;
};

std::span<const ConfigKey> table_of(std::string_view section, const Json& config) {
    if (section == "eagle_config") return eagle_section_keys;
    if (section == "transformer_layer_config") return eagle_layer_keys;
    if (config.contains("speculators_model_type")) return speculators_keys;
    if (config.contains("medusa_num_heads") || config.contains("hydra_num_heads") ||
        config.value("model_type", "") == "medusa")
        return decoding_head_keys;
    return eagle_keys;
}

/// Returns what the tables do not know, of all levels.
Notes unknown_fields(const Json& config) {
    Notes notes;
    EXPECT_TRUE(is_ok(check_keys("config.json", "", config, table_of("", config), notes)));
    for (const char* section : {"eagle_config", "transformer_layer_config"})
        if (config.contains(section)) {
            EXPECT_TRUE(
                is_ok(check_keys("config.json", section, config[section], table_of(section, config), notes)));
        }
    return notes;
}

TEST(DrafterKeys, EveryFieldOfEveryWriterIsInATable) {
    const std::vector<Written> all = {
        {"SafeAILab EAGLE-2",
         R"({"architectures": ["LlamaForCausalLM"], "bos_token_id": 128000, "eos_token_id": 128001,
            "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 14336,
            "max_position_embeddings": 2048, "model_type": "llama", "num_attention_heads": 32,
            "num_key_value_heads": 8, "num_hidden_layers": 1, "pad_token_id": 0, "rms_norm_eps": 1e-05,
            "tie_word_embeddings": false, "torch_dtype": "float16", "transformers_version": "4.28.1",
            "use_cache": true, "vocab_size": 128256, "rope_theta": 500000.0, "bias": false})"},
        {"SafeAILab EAGLE-3", R"({"architectures": ["LlamaForCausalLM"], "bos_token_id": 1, "eos_token_id": 2,
            "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 14336,
            "max_position_embeddings": 2048, "model_type": "llama", "num_attention_heads": 32,
            "num_key_value_heads": 8, "num_hidden_layers": 1, "pad_token_id": 0, "rms_norm_eps": 1e-05,
            "tie_word_embeddings": false, "torch_dtype": "float16", "transformers_version": "4.28.1",
            "use_cache": true, "vocab_size": 128256, "draft_vocab_size": 32000})"},
        {"SpecForge", R"({"architectures": ["LlamaForCausalLMEagle3"], "attention_bias": false,
            "attention_dropout": 0.0, "bos_token_id": 1, "decoder_sparse_step": 1, "draft_vocab_size": 32000,
            "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 17, 33], "use_aux_hidden_state": true},
            "eos_token_id": [1, 2], "fc_norm": true, "head_dim": 128, "hidden_act": "silu", "hidden_size": 4096,
            "initializer_range": 0.02, "intermediate_size": 9728, "max_position_embeddings": 8192,
            "max_window_layers": 36, "model_type": "llama", "norm_output": true, "num_attention_heads": 32,
            "num_hidden_layers": 1, "num_key_value_heads": 8, "pad_token_id": 0, "pretraining_tp": 1,
            "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 1000000, "sliding_window": 512,
            "target_hidden_size": 4096, "target_model_type": "gemma3_text", "tie_word_embeddings": false,
            "torch_dtype": "bfloat16", "transformers_version": "4.57.1", "use_cache": true,
            "use_sliding_window": false, "vocab_size": 151936})"},
        {"NVIDIA Model-Optimizer", R"({"architectures": ["LlamaForCausalLMEagle3"], "bos_token_id": 1,
            "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.01,
            "intermediate_size": 14336, "max_position_embeddings": 4096, "model_type": "llama",
            "num_attention_heads": 32, "num_key_value_heads": 8, "num_hidden_layers": 1, "pad_token_id": 0,
            "rms_norm_eps": 1e-05, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
            "transformers_version": "5.0", "use_cache": true, "vocab_size": 128256, "draft_vocab_size": 32000,
            "rope_scaling": {"rope_type": "default", "rope_theta": 10000}, "attention_bias": false,
            "attention_dropout": 0.0, "head_dim": 128, "mlp_bias": false, "pretraining_tp": 1, "rope_theta": 10000,
            "eagle_config": {"eagle_aux_hidden_state_layer_ids": [], "use_aux_hidden_state": true,
            "use_input_layernorm_in_first_layer": true, "use_last_layernorm": true, "use_mtp_layernorm": false,
            "next_layer_regular": true, "parallel_draft_step": 1, "parallel_draft_heads_num_layers": 1}})"},
        {"AngelSlim",
         R"({"architectures": ["Eagle3LlamaForCausalLM"], "model_type": "llama", "dtype": "bfloat16",
            "attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": 2, "head_dim": 128,
            "hidden_act": "silu", "hidden_size": 2560, "initializer_range": 0.02, "intermediate_size": 9728,
            "max_position_embeddings": 262144, "max_window_layers": 36, "num_attention_heads": 32,
            "num_hidden_layers": 1, "num_key_value_heads": 8, "rms_norm_eps": 1e-06, "rope_scaling": {"type":
            "default"}, "rope_theta": 5000000, "sliding_window": null, "use_cache": true, "vocab_size": 151936,
            "tie_word_embeddings": true, "use_sliding_window": false, "transformers_version": "4.57.1",
            "image_token_id": 1, "video_token_id": 2, "vision_end_token_id": 3, "vision_start_token_id": 4,
            "draft_vocab_size": 32000, "modal_type": "VLM"})"},
        {"speculators EAGLE-3", R"({"architectures": ["Eagle3Speculator"], "auto_map": {"": "eagle3.Config"},
            "draft_vocab_size": 32000, "eagle_aux_hidden_state_layer_ids": [2, 18, 33], "embed_requires_grad": false,
            "fc_norm": false, "has_no_defaults_at_init": false, "norm_before_fc": false,
            "norm_before_residual": true, "norm_output": false, "speculators_config": {"algorithm": "eagle3"},
            "speculators_model_type": "eagle3", "speculators_version": "0.9.0", "target_hidden_size": null,
            "tie_word_embeddings": false, "torch_dtype": "bfloat16", "transformers_version": "4.57.1",
            "transformer_layer_config": {"attention_bias": false, "attention_dropout": 0.0, "head_dim": 128,
            "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 12288,
            "layer_types": ["full_attention"], "max_position_embeddings": 40960, "max_window_layers": 28,
            "mlp_bias": false, "model_type": "qwen3", "num_attention_heads": 32, "num_hidden_layers": 1,
            "num_key_value_heads": 8, "pretraining_tp": 1, "rms_norm_eps": 1e-06, "rope_parameters": {"rope_theta":
            1000000, "rope_type": "default"}, "sliding_window": null, "use_cache": true, "use_sliding_window": false,
            "vocab_size": 151936}})"},
        {"speculators EAGLE", R"({"architectures": ["EagleSpeculator"], "speculators_model_type": "eagle",
            "fusion_bias": false, "layernorms": false, "transformer_layer_architecture": "LlamaDecoderLayer",
            "transformer_layer_config": {"model_type": "llama", "hidden_size": 4096}, "speculators_config": {}})"},
        {"FasterDecoding",
         R"({"medusa_num_heads": 5, "medusa_num_layers": 1, "base_model_name_or_path": "lmsys/vicuna",
            "transformers_version": "4.34.0", "version": "2"})"},
        {"vLLM Medusa", R"({"architectures": ["MedusaModel"], "model_type": "medusa", "hidden_size": 4096,
            "vocab_size": 32000, "num_heads": 5, "num_hidden_layers": 1, "max_paths": 64, "topk": 10,
            "max_seq_len": 1048576, "truncated_vocab_size": 32000, "medusa_fc_bias": true, "original_lm_head": true,
            "logit_scale": 1.0, "transformers_version": "4.48.0", "torch_dtype": "float16"})"},
        {"Hydra",
         R"({"hydra_num_heads": 4, "hydra_num_layers": 4, "hydra_head_arch": "mlp", "grounded_heads": true,
            "hidden_state_offset": 0, "base_model_name_or_path": "lmsys/vicuna"})"},
        {"tools/train_drafter.py", R"({"hydra_num_heads": 3, "hydra_num_layers": 1, "grounded_heads": true,
            "hidden_size": 576, "shares_target_lm_head": true})"},
    };
    for (const Written& one : all) {
        SCOPED_TRACE(one.writer);
        EXPECT_EQ(unknown_fields(Json::parse(one.config)), Notes());
    }
}

TEST(DrafterKeys, UnknownFieldsAreSaidAndOthersRefused) {
    EXPECT_EQ(unknown_fields(Json{{"attention_sinks", 4}, {"dropout_rate", 0.1}}).size(), 1u);
    Notes notes;
    EXPECT_FALSE(check_keys("c", "", Json{{"logit_scale", 2}}, eagle_keys, notes).ok());
    EXPECT_FALSE(check_keys("c", "", Json{{"parallel_draft_step", 4}}, eagle_section_keys, notes).ok());
    EXPECT_FALSE(check_keys("c", "", Json{{"quantization_config", Json::object()}}, eagle_keys, notes).ok());
}

}  // namespace
}  // namespace draftscope
