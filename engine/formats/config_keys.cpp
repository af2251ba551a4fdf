#include "engine/formats/config_keys.h"

#include <array>

#include "base/mapped_file.h"

namespace draftscope {
namespace {

using Json = nlohmann::json;

constexpr auto transformers_table = std::to_array<ConfigKey>({
    {"_*", KeyUse::no_effect},
    {"add_cross_attention", KeyUse::fixed, "false"},
    {"architectures", KeyUse::no_effect},
    {"attention_dropout", KeyUse::no_effect},
    {"attn_implementation", KeyUse::no_effect},
    {"auto_map", KeyUse::no_effect},
    {"bad_words_ids", KeyUse::no_effect},
    {"begin_suppress_tokens", KeyUse::no_effect},
    {"bos_token_id", KeyUse::no_effect},
    {"chunk_size_feed_forward", KeyUse::no_effect},
    {"cross_attention_hidden_size", KeyUse::no_effect},
    {"decoder_start_token_id", KeyUse::no_effect},
    {"diversity_penalty", KeyUse::no_effect},
    {"do_sample", KeyUse::no_effect},
    {"dtype", KeyUse::no_effect},
    {"early_stopping", KeyUse::no_effect},
    {"embd_pdrop", KeyUse::no_effect},
    {"encoder_no_repeat_ngram_size", KeyUse::no_effect},
    {"eos_token_id", KeyUse::no_effect},
    {"exponential_decay_length_penalty", KeyUse::no_effect},
    {"experts_implementation", KeyUse::no_effect},
    {"finetuning_task", KeyUse::no_effect},
    {"forced_bos_token_id", KeyUse::no_effect},
    {"forced_eos_token_id", KeyUse::no_effect},
    {"gradient_checkpointing", KeyUse::no_effect},
    {"hidden_dropout", KeyUse::no_effect},
    {"id2label", KeyUse::no_effect},
    {"initializer_range", KeyUse::no_effect},
    {"is_decoder", KeyUse::no_effect},
    {"is_llama_config", KeyUse::no_effect},
    {"is_encoder_decoder", KeyUse::fixed, "false"},
    {"keys_to_ignore_at_inference", KeyUse::no_effect},
    {"label2id", KeyUse::no_effect},
    {"length_penalty", KeyUse::no_effect},
    {"max_length", KeyUse::no_effect},
    {"min_length", KeyUse::no_effect},
    {"model_type", KeyUse::no_effect},
    {"name_or_path", KeyUse::no_effect},
    {"no_repeat_ngram_size", KeyUse::no_effect},
    {"num_beam_groups", KeyUse::no_effect},
    {"num_beams", KeyUse::no_effect},
    {"num_labels", KeyUse::no_effect},
    {"num_return_sequences", KeyUse::no_effect},
    {"output_attentions", KeyUse::no_effect},
    {"output_hidden_states", KeyUse::no_effect},
    {"output_scores", KeyUse::no_effect},
    {"pad_token_id", KeyUse::no_effect},
    {"prefix", KeyUse::no_effect},
    {"pretraining_tp", KeyUse::no_effect},  // the same sums in slices
    {"problem_type", KeyUse::no_effect},
    {"pruned_heads", KeyUse::fixed, "{}"},
    {"remove_invalid_values", KeyUse::no_effect},
    {"repetition_penalty", KeyUse::no_effect},
    {"resid_pdrop", KeyUse::no_effect},
    {"return_dict", KeyUse::no_effect},
    {"return_dict_in_generate", KeyUse::no_effect},
    {"sep_token_id", KeyUse::no_effect},
    {"suppress_tokens", KeyUse::no_effect},
    {"task_specific_params", KeyUse::no_effect},
    {"temperature", KeyUse::no_effect},
    {"tf_legacy_loss", KeyUse::no_effect},
    {"tie_encoder_decoder", KeyUse::no_effect},
    {"tokenizer_class", KeyUse::no_effect},
    {"top_k", KeyUse::no_effect},
    {"top_p", KeyUse::no_effect},
    {"torch_dtype", KeyUse::no_effect},
    {"torchscript", KeyUse::no_effect},
    {"transformers.js_config", KeyUse::no_effect},
    {"transformers_version", KeyUse::no_effect},
    {"typical_p", KeyUse::no_effect},
    {"unsloth_*", KeyUse::no_effect},
    {"use_bfloat16", KeyUse::no_effect},
    {"use_cache", KeyUse::no_effect},
});

constexpr auto target_table = std::to_array<ConfigKey>({
    {"architectures"},
    {"attention_bias"},
    {"attention_chunk_size", KeyUse::fixed, "0"},
    {"attention_multiplier", KeyUse::fixed, "1"},
    {"attn_logit_softcapping", KeyUse::fixed, "0"},
    {"clip_qkv", KeyUse::fixed, ""},
    {"embedding_multiplier", KeyUse::fixed, "1"},
    {"eos_token_id"},
    {"final_logit_softcapping", KeyUse::fixed, "0"},
    {"head_dim"},
    {"hidden_act"},
    {"hidden_size"},
    {"intermediate_size"},
    {"layer_types"},
    {"logit_scale", KeyUse::fixed, "1"},
    {"logits_scaling", KeyUse::fixed, "1"},
    {"max_position_embeddings"},
    {"max_sequence_length", KeyUse::no_effect},
    {"max_window_layers", KeyUse::no_effect},  // counts only with use_sliding_window
    {"mlp_bias"},
    {"model_max_length", KeyUse::no_effect},
    {"no_rope_layers", KeyUse::fixed, "[]"},
    {"num_attention_heads"},
    {"num_experts", KeyUse::fixed, "0, 1"},
    {"num_hidden_layers"},
    {"num_key_value_heads"},
    {"num_local_experts", KeyUse::fixed, "0, 1"},
    {"original_max_position_embeddings"},
    {"partial_rotary_factor"},
    {"qk_layernorm", KeyUse::fixed, "false"},
    {"quantization_config"},
    {"residual_multiplier", KeyUse::fixed, "1"},
    {"rms_norm_eps"},
    {"rotary_pct", KeyUse::fixed, "1"},
    {"rope_interleaved", KeyUse::fixed, "false"},
    {"rope_parameters"},
    {"rope_scaling"},
    {"rope_theta"},
    {"seq_length", KeyUse::no_effect},
    {"sliding_window"},
    {"tie_word_embeddings"},
    {"use_mrope", KeyUse::no_effect},  // equals the plain rotation for text
    {"use_qk_norm", KeyUse::fixed, "false"},
    {"use_sliding_window"},
    {"vocab_size"},
});

/// Behind "ARCHITECTURE." in a GGUF file.
constexpr auto gguf_model_table = std::to_array<ConfigKey>({
    {"attention.causal", KeyUse::fixed, "true"},
    {"attention.clamp_kqv", KeyUse::fixed, "0"},
    {"attention.head_count"},
    {"attention.head_count_kv"},
    {"attention.key_length"},
    {"attention.layer_norm_epsilon", KeyUse::no_effect},
    {"attention.layer_norm_rms_epsilon"},
    {"attention.max_alibi_bias", KeyUse::fixed, "0"},
    {"attention.scale"},
    {"attention.sliding_window"},
    {"attention.temperature_scale", KeyUse::fixed, "0"},
    {"attention.value_length"},
    {"attn_logit_softcapping", KeyUse::fixed, "0"},
    {"block_count"},
    {"context_length"},
    {"embedding_length"},
    {"embedding_scale", KeyUse::fixed, "0, 1"},
    {"expert_count", KeyUse::fixed, "0"},
    {"expert_used_count", KeyUse::fixed, "0"},
    {"feed_forward_length"},
    {"final_logit_softcapping", KeyUse::fixed, "0"},
    {"logit_scale", KeyUse::fixed, "0, 1"},
    {"nextn_predict_layers", KeyUse::fixed, "0"},
    {"pooling_type", KeyUse::fixed, "0"},
    {"residual_scale", KeyUse::fixed, "0, 1"},
    {"rope.dimension_count"},
    {"rope.freq_base"},
    {"rope.scale_linear"},
    {"rope.scaling.attn_factor"},
    {"rope.scaling.factor"},
    {"rope.scaling.finetuned", KeyUse::no_effect},
    {"rope.scaling.original_context_length"},
    {"rope.scaling.type"},
    {"rope.scaling.yarn_attn_factor"},
    {"rope.scaling.yarn_beta_fast"},
    {"rope.scaling.yarn_beta_slow"},
    {"rope.scaling.yarn_ext_factor", KeyUse::fixed, "1, -1"},
    {"rope.scaling.yarn_log_multiplier", KeyUse::fixed, "0"},
    {"tensor_data_layout", KeyUse::no_effect},
    {"use_parallel_residual", KeyUse::fixed, "false"},
    {"vocab_size"},
});

/// Behind "tokenizer.".
constexpr auto gguf_tokenizer_table = std::to_array<ConfigKey>({
    {"chat_template"},
    {"chat_template.*"},
    {"chat_templates"},
    {"ggml.add_bos_token"},
    {"ggml.add_eos_token", KeyUse::fixed, "false"},
    {"ggml.add_sep_token", KeyUse::fixed, "false"},
    {"ggml.add_space_prefix"},
    {"ggml.added_tokens", KeyUse::no_effect},
    {"ggml.bos_token_id"},
    {"ggml.cls_token_id", KeyUse::no_effect},
    {"ggml.eom_token_id"},
    {"ggml.eos_token_id"},
    {"ggml.eot_token_id"},
    {"ggml.fim_*", KeyUse::no_effect},
    {"ggml.mask_token_id", KeyUse::no_effect},
    {"ggml.merges"},
    {"ggml.middle_token_id", KeyUse::no_effect},
    {"ggml.model"},
    {"ggml.padding_token_id", KeyUse::no_effect},
    {"ggml.pre"},
    {"ggml.precompiled_charsmap", KeyUse::no_effect},
    {"ggml.prefix_token_id", KeyUse::no_effect},
    {"ggml.remove_extra_whitespaces", KeyUse::no_effect},
    {"ggml.scores"},
    {"ggml.seperator_token_id", KeyUse::no_effect},
    {"ggml.suffix_token_id", KeyUse::no_effect},
    {"ggml.token_type"},
    {"ggml.token_type_count", KeyUse::no_effect},
    {"ggml.tokens"},
    {"ggml.unknown_token_id"},
    {"huggingface.json", KeyUse::no_effect},
    {"rwkv.world", KeyUse::no_effect},
});

/// Behind "general.".
constexpr auto gguf_general_table = std::to_array<ConfigKey>({
    {"alignment"},
    {"architecture"},
    {"type", KeyUse::fixed, "\"model\""},
    {"*", KeyUse::no_effect},
});

const ConfigKey* find_key(std::span<const ConfigKey> table, std::string_view name) {
    for (const ConfigKey& key : table) {
        const bool prefix = key.name.ends_with('*');
        if (prefix ? name.starts_with(key.name.substr(0, key.name.size() - 1)) : name == key.name)
            return &key;
    }
    return nullptr;
}

bool has_value(std::string_view values, const Json& found) {
    for (const Json& value : Json::parse("[" + std::string(values) + "]"))
        if (value == found) return true;
    return false;
}

}  // namespace

Status check_keys(const std::string& file, std::string_view prefix, const Json& object,
                  std::span<const ConfigKey> table, Notes& notes) {
    std::string unknown;
    for (const auto& [name, value] : object.items()) {
        if (value.is_null()) continue;
        const ConfigKey* key = find_key(table, name);
        if (key == nullptr) key = find_key(transformers_table, name);
        if (key == nullptr) {
            unknown += fmt::format("{}{}{} = {}", unknown.empty() ? "" : ", ", prefix, printable(name),
                                   printable_json(value));
        } else if (key->use == KeyUse::fixed && !has_value(key->values, value)) {
            return bad_input("{}: {}{} is {}, which this version does not compute; expected {}", file, prefix,
                             name, printable_json(value), key->values.empty() ? "null" : key->values);
        }
    }
    if (!unknown.empty())
        add_note(notes, "{}: unknown to this version and not read, though it may change results: {}", file,
                 unknown);
    return {};
}

Status check_keys(const JsonFile& file, std::span<const ConfigKey> table, Notes& notes) {
    return check_keys(file.path(), file.prefix(), file.json(), table, notes);
}

std::span<const ConfigKey> transformers_keys() {
    return transformers_table;
}
std::span<const ConfigKey> target_keys() {
    return target_table;
}
std::span<const ConfigKey> gguf_model_keys() {
    return gguf_model_table;
}
std::span<const ConfigKey> gguf_tokenizer_keys() {
    return gguf_tokenizer_table;
}
std::span<const ConfigKey> gguf_general_keys() {
    return gguf_general_table;
}

}  // namespace draftscope
