#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <filesystem>
#include <set>
#include <utility>

#include "base/mapped_file.h"
#include "engine/formats/architecture.h"
#include "engine/formats/hf_folder.h"

namespace draftscope {
namespace {

constexpr std::string_view single_file = "model.safetensors";
constexpr const char* stored_embedding = "model.embed_tokens.weight";
constexpr const char* stored_head = "lm_head.weight";

/// Tensor names outside and inside the layers; GGUF names on the left.
constexpr std::array<std::pair<std::string_view, std::string_view>, 3> outer_names = {{
    {"token_embd.weight", stored_embedding},
    {"output_norm.weight", "model.norm.weight"},
    {"output.weight", stored_head},
}};
constexpr std::array<std::pair<std::string_view, std::string_view>, 16> layer_names = {{
    {"attn_norm.weight", "input_layernorm.weight"},
    {"attn_q.weight", "self_attn.q_proj.weight"},
    {"attn_k.weight", "self_attn.k_proj.weight"},
    {"attn_v.weight", "self_attn.v_proj.weight"},
    {"attn_q.bias", "self_attn.q_proj.bias"},
    {"attn_k.bias", "self_attn.k_proj.bias"},
    {"attn_v.bias", "self_attn.v_proj.bias"},
    {"attn_q_norm.weight", "self_attn.q_norm.weight"},
    {"attn_k_norm.weight", "self_attn.k_norm.weight"},
    {"attn_output.weight", "self_attn.o_proj.weight"},
    // In most families this name is the norm before the feed-forward; in OLMo 2 it is the norm after
    // attention.
    {"ffn_norm.weight", "post_attention_layernorm.weight"},
    {"post_attention_norm.weight", "post_attention_layernorm.weight"},
    {"post_ffw_norm.weight", "post_feedforward_layernorm.weight"},
    {"ffn_gate.weight", "mlp.gate_proj.weight"},
    {"ffn_up.weight", "mlp.up_proj.weight"},
    {"ffn_down.weight", "mlp.down_proj.weight"},
}};

/// Converts "blk.3.ffn_up.weight" to "model.layers.3.mlp.up_proj.weight".
std::string stored_name(std::string_view name) {
    for (const auto& [gguf, hf] : outer_names) {
        if (name == gguf) return std::string(hf);
    }
    const std::size_t dot = name.find('.', 4);
    for (const auto& [gguf, hf] : layer_names) {
        if (name.substr(dot + 1) == gguf)
            return fmt::format("model.layers.{}.{}", name.substr(4, dot - 4), hf);
    }
    assert(false && "every tensor of model_tensors() has a name here");
    return std::string(name);
}

/// Adds a tensor of `stored` as `name`.
void add_as(std::string name, const StoredTensor& stored, TensorFile& out) {
    StoredTensor tensor = stored;
    tensor.info.name = std::move(name);
    out.add(std::move(tensor));
}

/// Adds the tensor that the folder must hold under its own name.
Status add_tensor(const TensorFile& stored, const ModelTensor& expected, TensorFile& out) {
    const std::string name = stored_name(expected.name);
    const StoredTensor* found = stored.find_stored(name);
    if (found == nullptr)
        return bad_input("{}: tensor '{}' is missing; the folder does not hold a complete model", out.path(),
                         name);
    const TensorInfo& info = found->info;
    if (info.shape != expected.shape) {
        return bad_input("{}: tensor '{}' has shape [{}], config.json requires [{}]", found->file->path(),
                         name, fmt::join(info.shape, ", "), fmt::join(expected.shape, ", "));
    }
    if (info.type != "F32" && info.type != "F16" && info.type != "BF16" && info.type != "F64") {
        return bad_input("{}: tensor '{}' has type {}, expected F32, F16 or BF16", found->file->path(), name,
                         info.type);
    }
    add_as(expected.name, *found, out);
    return {};
}

/// Sets hf.config.tied_head.
void decide_head(TensorFile& stored, HfConfig& hf, const std::string& folder, Notes& notes) {
    const TensorInfo* embedding = stored.find(stored_embedding);
    const TensorInfo* head = stored.find(stored_head);
    hf.config.tied_head = hf.tied.value_or(head == nullptr);
    if (!hf.config.tied_head || head == nullptr) return;
    if (embedding == nullptr) {
        add_note(notes, "{}: tensor '{}' is missing; the tied {} is used", folder, stored_embedding,
                 stored_head);
        add_as(stored_embedding, *stored.find_stored(stored_head), stored);
        return;
    }
    if (head->type == embedding->type && std::ranges::equal(stored.stored(*head), stored.stored(*embedding)))
        return;
    hf.config.tied_head = false;
    add_note(notes,
             "{}: tie_word_embeddings is true, but '{}' differs from '{}'; it is used, as in transformers 5 "
             "(transformers 4 ties them)",
             folder, stored_head, stored_embedding);
}

/// Tensors that may be ignored: precomputed rotary angles of old programs, and the copy of a tied head.
bool may_be_ignored(std::string_view stored, bool tied) {
    return stored.ends_with(".rotary_emb.inv_freq") || (tied && stored == stored_head);
}

}  // namespace

Result<std::unique_ptr<TensorFile>> open_hf_weights(const std::string& folder, HfConfig& hf, Notes& notes) {
    const std::string file = find_tensor_file(folder, {&single_file, 1});
    if (file.empty())
        return bad_input("{}: holds neither {} nor {}.index.json{}", folder, single_file, single_file,
                         other_contents(folder));
    TensorFile stored(file);
    DS_TRY(stored.open(notes));
    decide_head(stored, hf, folder, notes);
    auto out = std::make_unique<TensorFile>(folder);
    out->share_files(stored);
    std::set<std::string> used;
    for (const ModelTensor& tensor : model_tensors(hf.config)) {
        DS_TRY(add_tensor(stored, tensor, *out));
        used.insert(stored_name(tensor.name));
    }
    for (const std::string& name : stored.names()) {
        if (!used.contains(name) && !may_be_ignored(name, hf.config.tied_head)) {
            return bad_input("{}: tensor '{}' is not part of a {} model as config.json describes it", folder,
                             printable(name), hf.config.architecture);
        }
    }
    return out;
}

}  // namespace draftscope
