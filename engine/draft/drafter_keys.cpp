#include "engine/draft/drafter_files.h"

namespace draftscope {
namespace {

// No effect: the tensors decide, or a field of training or of a target's experts and images, copied. Trainers
// attend to the whole context, whatever sliding_window says.
constexpr std::string_view layer_read = R"(
    head_dim hidden_act hidden_size intermediate_size layer_types max_position_embeddings mlp_bias
    num_attention_heads num_hidden_layers num_key_value_heads original_max_position_embeddings
    partial_rotary_factor rms_norm_eps rope_parameters rope_scaling rope_theta use_sliding_window vocab_size )";
constexpr std::string_view layer_no_effect = R"(
    attention_bias decoder_sparse_step image_token_id max_window_layers mlp_only_layers moe_intermediate_size
    norm_topk_prob num_experts num_experts_per_tok output_router_logits position_embedding_type qkv_bias
    router_aux_loss_coef sliding_window tie_word_embeddings video_token_id vision_end_token_id
    vision_start_token_id vision_token_id )";
constexpr std::string_view layer_fixed =
    "attn_output_gate=false is_causal=true logit_scale=1 quantization_config= rope_interleaved=false";

}  // namespace

const std::vector<ConfigKey> eagle_layer_keys = make_keys(layer_read, layer_no_effect, layer_fixed);

const std::vector<ConfigKey> eagle_keys = [] {
    std::vector<ConfigKey> keys = make_keys(R"(
            base_model_name_or_path bias draft_vocab_size eagle_aux_hidden_state_layer_ids eagle_config fc_norm
            norm_before_fc norm_before_residual norm_output target_hidden_size target_model_name_or_path
            target_vocab_size)",
                                            "has_lm_head modal_type target_model_type training", "");
    keys.insert(keys.end(), eagle_layer_keys.begin(), eagle_layer_keys.end());
    return keys;
}();

const std::vector<ConfigKey> eagle_section_keys =
    make_keys(R"(
        aux_meaning eagle_aux_hidden_state_layer_ids eh_proj_before_attn fc_norm norm_before_fc
        norm_before_residual norm_output return_hidden_post_norm use_aux_hidden_state
        use_input_layernorm_in_first_layer use_last_layernorm use_mtp_layernorm)",
              R"(
        draft_vocab_size has_lm_head next_layer_regular num_aux_hidden_states parallel_draft_heads_num_layers)",
              "eagle_decoder_type=\"llama\" parallel_draft_step=1");

const std::vector<ConfigKey> speculators_keys = make_keys(R"(
        aux_hidden_state_layer_ids draft_vocab_size eagle_aux_hidden_state_layer_ids fc_norm fusion_bias
        layernorms norm_before_fc norm_before_residual norm_output speculators_config speculators_model_type
        target_hidden_size transformer_layer_config)",
                                                          R"(
        embed_requires_grad has_no_defaults_at_init speculators_version tie_word_embeddings
        transformer_layer_architecture)",
                                                          "");

const std::vector<ConfigKey> decoding_head_keys = make_keys(R"(
        hidden_size hidden_state_offset hydra_head_arch hydra_num_heads medusa_hidden_size medusa_num_heads
        num_heads num_medusa_heads truncated_vocab_size vocab_size)",
                                                            R"(
        base_model_name_or_path grounded_heads hydra_num_layers max_paths max_seq_len medusa_choices
        medusa_fc_bias medusa_head_type medusa_num_layers num_hidden_layers num_medusa_layers original_lm_head
        shares_target_lm_head tie_word_embeddings topk training version)",
                                                            "logit_scale=1");

}  // namespace draftscope
