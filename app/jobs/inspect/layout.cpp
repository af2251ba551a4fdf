#include <fmt/ranges.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <fstream>

#include "app/jobs/inspect/eagle.h"
#include "app/jobs/resolve/assets.h"
#include "engine/formats/architecture.h"
#include "engine/formats/safetensors_writer.h"
#include "kernels/ops/float16.h"

// Writes EAGLE checkpoints in the layouts that serving stacks read.
namespace draftscope {
namespace {

using OrderedJson = nlohmann::ordered_json;
namespace fs = std::filesystem;

/// A checkpoint to write, and what changes.
struct Copy {
    const Contents& contents;
    const std::string& layout;
    const ModelFile* target;
    EagleContents& from;
    Notes changes;
    int renamed = 0;
    std::vector<TensorToSave> tensors = {};
    std::deque<std::string> values = {};  ///< of tensors that are not stored in this form

    bool is_eagle3() const { return from.checkpoint.generation == EagleGeneration::eagle3; }
    int drafted() const {
        return from.rows.ids.empty() ? from.vocab : static_cast<int>(from.rows.ids.size());
    }
    void add(const std::string& name, std::string_view type, std::vector<std::int64_t> shape,
             std::string bytes) {
        const std::string& kept = values.emplace_back(std::move(bytes));
        tensors.push_back({name, type, std::move(shape), std::as_bytes(std::span(kept))});
    }
    /// Adds these rows of a tensor as f16; all of them if there are none.
    void add_rows(const std::string& name, const WeightSource& weights, const TensorInfo& info,
                  const std::vector<TokenId>& rows) {
        std::string bytes;
        std::vector<float> values_of_row(info.cols());
        std::vector<std::int64_t> shape = info.shape;
        if (!rows.empty()) shape.front() = std::ssize(rows);
        for (std::int64_t i = 0; i < (rows.empty() ? info.rows() : std::ssize(rows)); ++i) {
            weights.read_row(info, rows.empty() ? i : rows[i], values_of_row.data());
            for (const float value : values_of_row) {
                const std::uint16_t half = kernels::float_to_f16(value);
                bytes.append(reinterpret_cast<const char*>(&half), sizeof half);
            }
        }
        add(name, "F16", std::move(shape), std::move(bytes));
    }
};

/// Adds a tensor under its new name, with the LM head's rows in the order of their tokens.
void add_tensor(Copy& copy, const std::string& official) {
    EagleCheckpoint& checkpoint = copy.from.checkpoint;
    const TensorInfo& info = *checkpoint.weights->find(checkpoint.name(official));
    const bool renames = copy.is_eagle3() && copy.layout != "vllm" && official.starts_with("layers.0.");
    const std::string name = renames ? "midlayer." + official.substr(9) : official;
    if (name != info.name && copy.renamed++ == 0)
        add_note(copy.changes, "tensors are renamed: {} becomes {}, ...", info.name, name);
    const bool sort = official == "lm_head.weight" && !copy.from.rows.rows.empty();
    if (sort) add_note(copy.changes, "{}: rows are sorted by token", name);
    const bool plain = info.type == "F32" || info.type == "F16" || info.type == "BF16";
    // llama.cpp's rows of queries and keys have another order.
    if (plain && !sort && !copy.contents.gguf)
        return copy.tensors.push_back(
            {name, info.type, info.shape, std::as_bytes(checkpoint.weights->stored(info))});
    if (info.type != "F16") add_note(copy.changes, "{}: {} becomes F16", name, info.type);
    copy.add_rows(name, *checkpoint.weights, info, sort ? copy.from.rows.rows : std::vector<TokenId>());
}

/// Adds the LM head that the file lacks: servers fill missing tensors with zeros.
Status add_target_head(Copy& copy) {
    if (copy.target == nullptr)
        return bad_input(
            "{}: lm_head.weight is missing, which {} needs; give --target, whose rows are written",
            copy.contents.path, copy.layout);
    const WeightSource& weights = *copy.target->weights;
    const TensorInfo* info = weights.find("output.weight");
    if (info == nullptr) info = weights.find("token_embd.weight");
    copy.add_rows("lm_head.weight", weights, *info, copy.from.rows.ids);
    add_note(copy.changes, "lm_head.weight is added: {} rows of the target's", copy.drafted());
    return {};
}

void add_maps(Copy& copy) {
    const std::vector<TokenId>& ids = copy.from.rows.ids;
    if (ids.empty()) return;
    std::string map, marks(static_cast<std::size_t>(copy.from.vocab), '\0');
    for (std::int64_t i = 0; i < std::ssize(ids); ++i) {
        const std::int64_t offset = ids[i] - i;
        map.append(reinterpret_cast<const char*>(&offset), sizeof offset);
        marks[ids[i]] = 1;
    }
    copy.add("d2t", "I64", {std::ssize(ids)}, std::move(map));
    copy.add("t2d", "BOOL", {copy.from.vocab}, std::move(marks));
    add_note(copy.changes, "d2t holds the offsets of {} rows to their tokens, t2d marks those", ids.size());
}

/// The decoder layer's config, with the rotation in the form before transformers 5.
OrderedJson layer_json(const Copy& copy) {
    const EagleCheckpoint& checkpoint = copy.from.checkpoint;
    const LayerShape& shape = checkpoint.shape;
    OrderedJson out = {{"model_type", "llama"},
                       {"hidden_size", shape.hidden},
                       {"intermediate_size", shape.ffn},
                       {"num_hidden_layers", 1},
                       {"num_attention_heads", shape.heads},
                       {"num_key_value_heads", shape.kv_heads},
                       {"head_dim", shape.head_dim},
                       {"hidden_act", "silu"},
                       {"rms_norm_eps", std::stod(fmt::format("{:g}", shape.norm_eps))},
                       {"rope_theta", checkpoint.rotation.theta},
                       {"vocab_size", copy.from.vocab}};
    if (checkpoint.trained_positions > 0) out["max_position_embeddings"] = checkpoint.trained_positions;
    const nlohmann::json& config = copy.contents.layer_config();
    for (const char* field : {"rope_parameters", "rope_scaling"})
        if (config.contains(field) && config[field].is_object()) out["rope_scaling"] = config[field];
    return out;
}

void add_norm_flags(const EagleNorms& norms, OrderedJson& out) {
    out["norm_before_residual"] = norms.before_residual;  // vLLM takes an absent one for true
    if (norms.before_fc) out["norm_before_fc"] = true;
    if (norms.of_features) out["fc_norm"] = true;
    if (norms.output) out["norm_output"] = true;
}

OrderedJson speculators_json(const Copy& copy, const std::string& verifier) {
    const EagleCheckpoint& checkpoint = copy.from.checkpoint;
    OrderedJson classes = OrderedJson::array();
    if (const auto* target =
            copy.target == nullptr ? nullptr : architecture_by_name(copy.target->config.architecture))
        classes.push_back(target->hf_class);
    const OrderedJson proposal = {{"proposal_type", "greedy"}, {"speculative_tokens", 3}};
    OrderedJson out = {{"architectures", {"Eagle3Speculator"}},
                       {"speculators_model_type", "eagle3"},
                       {"draft_vocab_size", copy.drafted()},
                       {"tie_word_embeddings", false},
                       {"eagle_aux_hidden_state_layer_ids", checkpoint.aux_layers},
                       {"target_hidden_size", checkpoint.target_hidden},
                       {"transformer_layer_config", layer_json(copy)}};
    out["speculators_config"] = {{"algorithm", "eagle3"},
                                 {"default_proposal_method", "greedy"},
                                 {"proposal_methods", OrderedJson::array({proposal})},
                                 {"verifier", {{"name_or_path", verifier}, {"architectures", classes}}}};
    add_norm_flags(checkpoint.norms, out);
    return out;
}

OrderedJson config_json(const Copy& copy) {
    const EagleCheckpoint& checkpoint = copy.from.checkpoint;
    std::string verifier = checkpoint.verifier;
    if (verifier.empty() && copy.target != nullptr) verifier = copy.target->config.name;
    if (copy.is_eagle3() && copy.layout == "vllm") return speculators_json(copy, verifier);
    OrderedJson out = layer_json(copy);
    out["architectures"] = {copy.layout == "sglang" && copy.is_eagle3() ? "LlamaForCausalLMEagle3"
                                                                        : "LlamaForCausalLM"};
    if (!verifier.empty()) out["target_model_name_or_path"] = verifier;
    if (!copy.is_eagle3()) {
        out["bias"] = std::ranges::find(copy.from.tensors, "fc.bias") != copy.from.tensors.end();
        return out;
    }
    out["draft_vocab_size"] = copy.drafted();
    out["target_hidden_size"] = checkpoint.target_hidden;
    std::vector<int> layers = checkpoint.aux_layers;
    OrderedJson& section = copy.layout == "sglang" ? out["eagle_config"] : out;
    if (copy.layout == "sglang")  // counts layers by their output
        for (int& layer : layers) --layer;
    section["eagle_aux_hidden_state_layer_ids"] = layers;
    if (copy.layout == "sglang") section["use_aux_hidden_state"] = true;
    add_norm_flags(checkpoint.norms, section);
    return out;
}

/// Refuses what the layout cannot say.
Status check_expressible(const Copy& copy) {
    const EagleCheckpoint& checkpoint = copy.from.checkpoint;
    const std::string& path = copy.contents.path;
    if (!checkpoint.norms.head)
        return bad_input("{}: no layout can say that the LM head's input has no norm", path);
    if (copy.is_eagle3() && checkpoint.aux_layers.empty())
        return bad_input("{}: names no feature layers; give --target, whose depth sets EAGLE-3's default",
                         path);
    if (copy.layout == "sglang" && std::ranges::find(checkpoint.aux_layers, 0) != checkpoint.aux_layers.end())
        return bad_input(
            "{}: a feature is the input of layer 0, but sglang counts outputs; use --layout vllm", path);
    if (copy.contents.gguf && !checkpoint.rotation.divisors.empty())
        return bad_input("{}: its rotation is scaled by a tensor, which a folder's config cannot say", path);
    return {};
}

/// Writes the folder, and checks that it is read as the checkpoint was.
Status write_copy(const Copy& copy, const std::string& folder) {
    std::error_code error;
    if (fs::exists(folder, error)) return bad_input("--fix {}: exists; name a new folder", folder);
    if (!fs::create_directories(folder, error)) return failed("--fix {}: {}", folder, error.message());
    DS_TRY(save_safetensors(folder + "/model.safetensors", copy.tensors, {{"format", "pt"}}));
    std::ofstream file(folder + "/config.json");
    file << config_json(copy).dump(2) << "\n";
    file.close();
    if (!file) return failed("{}/config.json: cannot be written; is the disk full?", folder);
    DS_ASSIGN(const Contents contents, open_contents(folder));
    DS_ASSIGN(const EagleContents written, read_eagle_contents(contents, copy.target));
    if (written.checkpoint.aux_layers == copy.from.checkpoint.aux_layers &&
        written.rows.ids == copy.from.rows.ids &&
        written.checkpoint.norms.output == copy.from.checkpoint.norms.output)
        return {};
    return failed("{}: is read in another way than {}; do not use it", folder, copy.contents.path);
}

}  // namespace

Result<Notes> write_in_layout(const std::string& given, const std::string& target, const std::string& layout,
                              const std::string& folder) {
    Notes changes;
    DS_ASSIGN(const std::string path, find_checkpoint("inspect", given, changes));
    std::optional<ModelFile> model;
    if (!target.empty()) {
        DS_ASSIGN(const std::string file, find_checkpoint("--target", target, changes));
        DS_ASSIGN(model, open_model_file(file));
    }
    DS_ASSIGN(const Contents contents, open_contents(path));
    DS_ASSIGN(EagleContents from, read_eagle_contents(contents, model ? &*model : nullptr));
    append_notes(changes, from.checkpoint.notes);
    Copy copy{contents, layout, model ? &*model : nullptr, from, std::move(changes)};
    DS_TRY(check_expressible(copy));
    for (const std::string& name : from.tensors) add_tensor(copy, name);
    const bool has_head = std::ranges::find(from.tensors, "lm_head.weight") != from.tensors.end();
    if (copy.is_eagle3() && !has_head && layout != "draftscope") DS_TRY(add_target_head(copy));
    if (copy.is_eagle3()) add_maps(copy);
    DS_TRY(write_copy(copy, folder));
    add_note(copy.changes, "config.json is made anew{}",
             copy.is_eagle3() ? fmt::format(": features are the inputs of layers {}",
                                            fmt::join(from.checkpoint.aux_layers, ", "))
                              : "");
    return copy.changes;
}

}  // namespace draftscope
