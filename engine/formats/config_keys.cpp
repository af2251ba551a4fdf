#include "engine/formats/config_keys.h"

#include <algorithm>
#include <vector>

#include "base/mapped_file.h"

namespace draftscope {
namespace {

using Json = nlohmann::json;

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

std::vector<ConfigKey> make_keys(std::string_view read, std::string_view no_effect, std::string_view fixed) {
    std::vector<ConfigKey> out;
    const auto add = [&](std::string_view words, KeyUse use) {
        constexpr std::string_view blanks = " \n";
        for (std::size_t at = 0; (at = words.find_first_not_of(blanks, at)) != std::string_view::npos;) {
            const std::string_view word = words.substr(at, words.find_first_of(blanks, at) - at);
            const std::size_t equals = std::min(word.find('='), word.size());
            out.push_back({word.substr(0, equals), use, word.substr(std::min(equals + 1, word.size()))});
            at += word.size();
        }
    };
    add(read, KeyUse::read);
    add(fixed, KeyUse::fixed);
    add(no_effect, KeyUse::no_effect);
    return out;
}

Status check_keys(const std::string& file, std::string_view prefix, const Json& object,
                  std::span<const ConfigKey> table, Notes& notes) {
    std::string unknown;
    for (const auto& [name, value] : object.items()) {
        if (value.is_null()) continue;
        const ConfigKey* key = find_key(table, name);
        if (key == nullptr) key = find_key(transformers_keys, name);
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

// pretraining_tp computes the same sums in slices.
const std::vector<ConfigKey> transformers_keys = make_keys(
    "",
    R"(_* architectures attention_dropout attn_implementation auto_map bad_words_ids begin_suppress_tokens
bos_token_id chunk_size_feed_forward cross_attention_hidden_size decoder_start_token_id
diversity_penalty do_sample dtype early_stopping embd_pdrop encoder_no_repeat_ngram_size eos_token_id
exponential_decay_length_penalty experts_implementation finetuning_task forced_bos_token_id
forced_eos_token_id gradient_checkpointing hidden_dropout id2label initializer_range is_decoder
is_llama_config keys_to_ignore_at_inference label2id length_penalty max_length min_length model_type
name_or_path no_repeat_ngram_size num_beam_groups num_beams num_labels num_return_sequences
output_attentions output_hidden_states output_scores pad_token_id prefix pretraining_tp problem_type
remove_invalid_values repetition_penalty resid_pdrop return_dict return_dict_in_generate sep_token_id
suppress_tokens task_specific_params temperature tf_legacy_loss tie_encoder_decoder tokenizer_class
top_k top_p torch_dtype torchscript transformers.js_config transformers_version typical_p unsloth_*
use_bfloat16 use_cache)",
    R"(add_cross_attention=false is_encoder_decoder=false pruned_heads={})");

// use_mrope equals the plain rotation for text; max_window_layers counts only with use_sliding_window.
const std::vector<ConfigKey> target_keys = make_keys(
    R"(architectures attention_bias eos_token_id head_dim hidden_act hidden_size intermediate_size layer_types
max_position_embeddings mlp_bias num_attention_heads num_hidden_layers num_key_value_heads
original_max_position_embeddings partial_rotary_factor quantization_config rms_norm_eps rope_parameters
rope_scaling rope_theta sliding_window tie_word_embeddings use_sliding_window vocab_size)",
    R"(max_sequence_length max_window_layers model_max_length seq_length use_mrope)",
    R"(attention_chunk_size=0 attention_multiplier=1 attn_logit_softcapping=0 clip_qkv= embedding_multiplier=1
final_logit_softcapping=0 logit_scale=1 logits_scaling=1 no_rope_layers=[] num_experts=0,1
num_local_experts=0,1 qk_layernorm=false residual_multiplier=1 rotary_pct=1 rope_interleaved=false
use_qk_norm=false)");

const std::vector<ConfigKey> gguf_model_keys = make_keys(
    R"(attention.head_count attention.head_count_kv attention.key_length attention.layer_norm_rms_epsilon
attention.scale attention.sliding_window attention.value_length block_count context_length
embedding_length feed_forward_length rope.dimension_count rope.freq_base rope.scale_linear
rope.scaling.attn_factor rope.scaling.factor rope.scaling.original_context_length rope.scaling.type
rope.scaling.yarn_attn_factor rope.scaling.yarn_beta_fast rope.scaling.yarn_beta_slow vocab_size)",
    R"(attention.layer_norm_epsilon rope.scaling.finetuned tensor_data_layout)",
    R"(attention.causal=true attention.clamp_kqv=0 attention.max_alibi_bias=0 attention.temperature_scale=0
attn_logit_softcapping=0 embedding_scale=0,1 expert_count=0 expert_used_count=0
final_logit_softcapping=0 logit_scale=0,1 nextn_predict_layers=0 pooling_type=0 residual_scale=0,1
rope.scaling.yarn_ext_factor=1,-1 rope.scaling.yarn_log_multiplier=0 use_parallel_residual=false)");

const std::vector<ConfigKey> gguf_tokenizer_keys = make_keys(
    R"(chat_template chat_template.* chat_templates ggml.add_bos_token ggml.add_eos_token ggml.add_space_prefix ggml.bos_token_id
ggml.eom_token_id ggml.eos_token_id ggml.eot_token_id ggml.merges ggml.model ggml.pre ggml.scores
ggml.token_type ggml.tokens ggml.unknown_token_id)",
    R"(ggml.added_tokens ggml.cls_token_id ggml.fim_* ggml.mask_token_id ggml.middle_token_id
ggml.padding_token_id ggml.precompiled_charsmap ggml.prefix_token_id ggml.remove_extra_whitespaces
ggml.seperator_token_id ggml.suffix_token_id ggml.token_type_count huggingface.json rwkv.world)",
    R"(ggml.add_sep_token=false)");

const std::vector<ConfigKey> gguf_general_keys =
    make_keys(R"(alignment architecture)", R"(*)", R"(type="model")");

}  // namespace draftscope
