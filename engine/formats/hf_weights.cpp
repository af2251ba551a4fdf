#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <filesystem>
#include <map>
#include <utility>

#include "base/mapped_file.h"
#include "engine/formats/architecture.h"
#include "engine/formats/hf_folder.h"
#include "engine/formats/tensor_index.h"

namespace draftscope {
namespace {

constexpr const char* single_file = "model.safetensors";
constexpr const char* index_file = "model.safetensors.index.json";
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

class HfWeights final : public WeightSource {
  public:
    explicit HfWeights(std::string folder) : folder_(std::move(folder)) {}

    Status open(Notes& notes);
    /// Sets hf.config.tied_head.
    void decide_head(HfConfig& hf, Notes& notes);
    Status load(const HfConfig& hf);

    const std::string& path() const override { return folder_; }
    const TensorInfo* find(std::string_view name) const override {
        const Entry* entry = entries_.find(name);
        return entry == nullptr ? nullptr : &entry->info;
    }
    std::vector<std::string> names() const override { return entries_.names(); }
    void read_row(const TensorInfo& tensor, std::int64_t row, float* out) const override {
        const Entry* entry = entries_.find(tensor.name);
        assert(entry != nullptr);
        entry->location.file->read_row(*entry->location.info, row, out);
    }

    std::vector<const MappedFile*> files() const override {
        std::vector<const MappedFile*> out;
        for (const auto& source : files_) {
            for (const MappedFile* file : source->files()) out.push_back(file);
        }
        return out;
    }
    std::span<const std::uint8_t> stored(const TensorInfo& tensor) const override {
        const Entry* entry = entries_.find(tensor.name);
        if (entry == nullptr) return {};
        return entry->location.file->stored(*entry->location.info);
    }
    const std::uint8_t* stored_row(const TensorInfo& tensor, std::int64_t row) const override {
        const Entry* entry = entries_.find(tensor.name);
        return entry == nullptr ? nullptr : entry->location.file->stored_row(*entry->location.info, row);
    }

  private:
    struct Location {
        const WeightSource* file;
        const TensorInfo* info;
    };
    struct Entry {
        TensorInfo info;  ///< has the GGUF name
        Location location;
    };
    std::string in_folder(const std::string& name) const {
        return (std::filesystem::path(folder_) / name).string();
    }
    Status open_shards();
    Status add(const ModelTensor& wanted);

    std::string folder_;
    std::vector<std::unique_ptr<WeightSource>> files_;
    TensorIndex<Location> stored_;  ///< keyed by the names in the files
    TensorIndex<Entry> entries_;
};

Status HfWeights::open(Notes& notes) {
    std::error_code ignored;
    const bool indexed = std::filesystem::exists(in_folder(index_file), ignored);
    if (!std::filesystem::exists(in_folder(single_file), ignored)) {
        if (indexed) return open_shards();
        return bad_input("{}: holds neither {} nor {}{}", folder_, single_file, index_file,
                         other_contents(folder_));
    }
    if (indexed)
        add_note(notes, "{}: is not used, since the folder holds {}, as in transformers",
                 in_folder(index_file), single_file);
    DS_ASSIGN(auto file, open_safetensors(in_folder(single_file)));
    for (const std::string& name : file->names()) stored_.add(name, {file.get(), file->find(name)});
    files_.push_back(std::move(file));
    return {};
}

Status HfWeights::open_shards() {
    DS_ASSIGN(const JsonFile index, JsonFile::read(in_folder(index_file), "a model's weights"));
    DS_ASSIGN(const auto map, index.object("weight_map"));
    if (!map) return index.field_error("weight_map", "an object of file names");
    std::map<std::string, const WeightSource*> opened;
    for (const auto& [name, value] : index.find("weight_map")->items()) {
        const std::string file = value.is_string() ? value.get<std::string>() : std::string();
        // Reject names outside the folder.
        if (file.empty() || file.find_first_of("/\\") != std::string::npos || file == "..")
            return bad_input(
                "{}: weight_map gives '{}' as file of tensor '{}', expected a name in the folder",
                index.path(), printable_json(value), printable(name));
        const WeightSource*& shard = opened[file];
        if (shard == nullptr) {
            DS_ASSIGN(auto source, open_safetensors(in_folder(file)));
            shard = source.get();
            files_.push_back(std::move(source));
        }
        const TensorInfo* info = shard->find(name);
        if (info == nullptr)
            return bad_input("{}: tensor '{}' is missing, though {} says it is here", shard->path(),
                             printable(name), index_file);
        stored_.add(name, {shard, info});
    }
    return {};
}

Status HfWeights::add(const ModelTensor& wanted) {
    const std::string stored = stored_name(wanted.name);
    const Location* location = stored_.find(stored);
    if (location == nullptr)
        return bad_input("{}: tensor '{}' is missing; the folder does not hold a complete model", folder_,
                         stored);
    const TensorInfo& info = *location->info;
    if (info.shape != wanted.shape) {
        return bad_input("{}: tensor '{}' has shape [{}], config.json requires [{}]", location->file->path(),
                         stored, fmt::join(info.shape, ", "), fmt::join(wanted.shape, ", "));
    }
    if (info.type != "F32" && info.type != "F16" && info.type != "BF16" && info.type != "F64") {
        return bad_input("{}: tensor '{}' has type {}, expected F32, F16 or BF16", location->file->path(),
                         stored, info.type);
    }
    entries_.add(wanted.name, {{wanted.name, info.type, info.shape, info.bytes}, *location});
    return {};
}

void HfWeights::decide_head(HfConfig& hf, Notes& notes) {
    const Location* embedding = stored_.find(stored_embedding);
    const Location* head = stored_.find(stored_head);
    hf.config.tied_head = hf.tied.value_or(head == nullptr);
    if (!hf.config.tied_head || head == nullptr) return;
    if (embedding == nullptr) {
        add_note(notes, "{}: tensor '{}' is missing; the tied {} is used", folder_, stored_embedding,
                 stored_head);
        stored_.add(stored_embedding, *head);
        return;
    }
    const auto bytes = [](const Location& one) { return one.file->stored(*one.info); };
    if (head->info->type == embedding->info->type && std::ranges::equal(bytes(*head), bytes(*embedding)))
        return;
    hf.config.tied_head = false;
    add_note(notes,
             "{}: tie_word_embeddings is true, but '{}' differs from '{}'; it is used, as in transformers 5 "
             "(transformers 4 ties them)",
             folder_, stored_head, stored_embedding);
}

/// Tensors that may be ignored: precomputed rotary angles of old programs, and the copy of a tied head.
bool may_be_ignored(std::string_view stored, bool tied) {
    return stored.ends_with(".rotary_emb.inv_freq") || (tied && stored == stored_head);
}

Status HfWeights::load(const HfConfig& hf) {
    TensorIndex<bool> used;
    for (const ModelTensor& tensor : model_tensors(hf.config)) {
        DS_TRY(add(tensor));
        used.add(stored_name(tensor.name), true);
    }
    for (const std::string& name : stored_.names()) {
        if (used.find(name) == nullptr && !may_be_ignored(name, hf.config.tied_head)) {
            return bad_input("{}: tensor '{}' is not part of a {} model as config.json describes it", folder_,
                             printable(name), hf.config.architecture);
        }
    }
    return {};
}

}  // namespace

Result<std::unique_ptr<WeightSource>> open_hf_weights(const std::string& folder, HfConfig& hf, Notes& notes) {
    auto out = std::make_unique<HfWeights>(folder);
    DS_TRY(out->open(notes));
    out->decide_head(hf, notes);
    DS_TRY(out->load(hf));
    return std::unique_ptr<WeightSource>(std::move(out));
}

}  // namespace draftscope
