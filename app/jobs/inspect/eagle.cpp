#include "app/jobs/inspect/eagle.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/json_file.h"
#include "engine/weights/weight_packing.h"

namespace draftscope {
namespace {

using Json = nlohmann::json;

struct LayoutName {
    const char *id, *text;
};
/// By EagleLayout.
constexpr std::array<LayoutName, 4> layout_names = {{{"official", "SafeAILab"},
                                                     {"specforge", "SpecForge (SGLang)"},
                                                     {"speculators", "speculators (vLLM)"},
                                                     {"gguf", "GGUF (llama.cpp)"}}};

EagleLayout layout_of(const Contents& contents) {
    const Json& config = contents.config;
    if (contents.gguf) return EagleLayout::gguf;
    if (config.contains("speculators_config") || config.contains("speculators_model_type"))
        return EagleLayout::speculators;
    const bool specforge = config.value("architectures", Json()) == Json({"LlamaForCausalLMEagle3"});
    return specforge || config.contains("eagle_config") ? EagleLayout::specforge : EagleLayout::official;
}

bool is_eagle3(const Contents& contents) {
    return contents.part("hidden_norm.weight", "blk.0.attn_norm_2.weight") != nullptr ||
           contents.config.contains("eagle_config") || contents.config.contains("draft_vocab_size") ||
           printable_json(contents.config.value("architectures", Json())).find("agle3") != std::string::npos;
}

/// The sizes of the target that a checkpoint's config describes.
ModelConfig described_target(const Contents& contents) {
    ModelConfig out;
    const auto first = [&](const char* field, const char* other) {
        return contents.count(field) > 0 ? contents.count(field) : contents.count(other);
    };
    out.hidden = first("target_hidden_size", "hidden_size");
    out.vocab = first("vocab_size", "target_vocab_size");
    for (const char* name : {"t2d", "embed_tokens.weight", "lm_head.weight"})
        if (const TensorInfo* found = contents.part(name, "token_embd.weight");
            found != nullptr && out.vocab == 0)
            out.vocab = static_cast<int>(found->shape.front());
    out.context = std::max(contents.count("max_position_embeddings"), 1);
    return out;
}

/// Checks that a tensor has the shape by the config; 0 = as many as it has. An absent one may be optional.
Status check_tensor(EagleContents& found, const std::string& official, int rows, int columns,
                    bool required = true) {
    const WeightSource& weights = *found.checkpoint.weights;
    const std::string name = found.checkpoint.name(official);
    const TensorInfo* info = weights.find(name);
    if (info == nullptr && !required) return {};
    const std::int64_t count = rows == 0 && info != nullptr ? info->rows() : rows;
    const auto checked = columns == 0 ? require_tensor(weights, name, {count}, "by the config")
                                      : require_tensor(weights, name, {count, columns}, "by the config");
    found.tensors.push_back(official);
    return checked.ok() ? Status() : checked.error();
}

Status check_tensors(EagleContents& found) {
    EagleCheckpoint& checkpoint = found.checkpoint;
    const LayerShape& shape = checkpoint.shape;
    const bool eagle3 = checkpoint.generation == EagleGeneration::eagle3;
    const int d = shape.hidden, width = checkpoint.target_hidden;
    const TensorInfo* fc = checkpoint.weights->find(checkpoint.name("fc.weight"));
    auto features = static_cast<int>(checkpoint.aux_layers.size());
    if (features == 0 && fc != nullptr && width > 0) features = static_cast<int>(fc->cols() / width);
    const int fused = eagle3 ? features * width : 2 * d;
    DS_TRY(check_tensor(found, "fc.weight", d, fused));
    const auto matrix = [&](std::string name, int rows, int columns) {
        return check_tensor(found, "layers.0." + name + "_proj.weight", rows, columns);
    };
    for (const auto& [name, rows] :
         {std::pair("q", shape.q_width()), {"k", shape.kv_width()}, {"v", shape.kv_width()}}) {
        DS_TRY(matrix(fmt::format("self_attn.{}", name), rows, eagle3 ? 2 * d : d));
        DS_TRY(check_tensor(found, fmt::format("layers.0.self_attn.{}_proj.bias", name), rows, 0, false));
        DS_TRY(check_tensor(found, fmt::format("layers.0.self_attn.{}_norm.weight", name), shape.head_dim, 0,
                            false));
    }
    DS_TRY(matrix("self_attn.o", d, shape.q_width()));
    for (const char* name : {"mlp.gate", "mlp.up"}) DS_TRY(matrix(name, shape.ffn, d));
    DS_TRY(matrix("mlp.down", d, shape.ffn));
    DS_TRY(check_tensor(found, "layers.0.post_attention_layernorm.weight", d, 0));
    DS_TRY(check_tensor(found, "fc.bias", d, 0, false));
    for (const char* name : {"embed_tokens.weight", "lm_head.weight"})
        DS_TRY(check_tensor(found, name, 0, d, false));
    if (eagle3)
        for (const char* name :
             {"layers.0.hidden_norm.weight", "layers.0.input_layernorm.weight", "norm.weight"})
            DS_TRY(check_tensor(found, name, d, 0));
    if (checkpoint.norms.before_fc) DS_TRY(check_tensor(found, "input_norm.weight", fused, 0));
    for (int i = 0; checkpoint.norms.of_features && i < features; ++i)
        DS_TRY(check_tensor(found, fmt::format("fc_norm.{}.weight", i), width, 0));
    return checkpoint.check_used();
}

/// Reads the maps of a trimmed LM head, as the drafter does.
Status read_rows(EagleContents& found) {
    EagleCheckpoint& checkpoint = found.checkpoint;
    const HeadRowMaps maps = {checkpoint.name("d2t"), checkpoint.name("t2d"),
                              checkpoint.layout != EagleLayout::gguf, checkpoint.own_vocab,
                              checkpoint.name("lm_head.weight")};
    const TensorInfo* head = checkpoint.weights->find(maps.head);
    const bool maps_exist = checkpoint.has("d2t") || checkpoint.has("t2d");
    if (checkpoint.generation == EagleGeneration::eagle2 ||
        (head == nullptr ? !maps_exist : head->rows() == found.vocab))
        return {};
    const std::optional<int> rows =
        head == nullptr ? std::nullopt : std::optional(static_cast<int>(head->rows()));
    DS_ASSIGN(found.rows, read_head_rows(*checkpoint.weights, maps, rows, found.vocab, checkpoint.notes));
    return {};
}

/// Returns the cosine of some of the checkpoint's embeddings with the target's; nullopt if they differ in
/// kind.
std::optional<double> embedding_cosine(const EagleCheckpoint& checkpoint, const ModelFile& target) {
    const TensorInfo *ours = checkpoint.embedding, *theirs = target.weights->find("token_embd.weight");
    if (ours == nullptr || theirs == nullptr || ours->cols() != theirs->cols()) return std::nullopt;
    double product = 0, a2 = 0, b2 = 0;
    std::vector<float> a(ours->cols()), b(ours->cols());
    const std::int64_t last = std::min(ours->rows(), theirs->rows()) - 1;
    for (std::int64_t i = 0; i < 16; ++i) {
        checkpoint.weights->read_row(*ours, i * last / 15, a.data());
        target.weights->read_row(*theirs, i * last / 15, b.data());
        for (std::size_t k = 0; k < a.size(); ++k)
            product += a[k] * b[k], a2 += a[k] * a[k], b2 += b[k] * b[k];
    }
    return product / std::sqrt(std::max(a2 * b2, 1e-30));
}

void compare_eagle(const EagleCheckpoint& checkpoint, const ModelFile& file, Inspection& out) {
    const ModelConfig& target = file.config;
    compare(out, "hidden size", checkpoint.shape.hidden, target.hidden);
    if (checkpoint.own_vocab > 0) compare(out, "vocabulary", checkpoint.own_vocab, target.vocab);
    compare(out, "width of attention heads", checkpoint.shape.head_dim, target.head_dim,
            "rope=target cannot be used");
    compare(out, "rope base", checkpoint.rotation.theta, target.rotation.theta,
            "rope=target uses the target's");
    if (checkpoint.trained_positions > 0)
        compare(out, "context", checkpoint.trained_positions, target.context);
    if (const auto cosine = embedding_cosine(checkpoint, file))
        compare(out, "embeddings", *cosine > 0.99, true,
                fmt::format("others (cosine {:.2f}); embeddings=target uses the target's", *cosine));
}

void add_head(const EagleContents& found, Inspection& out) {
    const std::vector<TokenId>& ids = found.rows.ids;
    const bool own = std::ranges::find(found.tensors, "lm_head.weight") != found.tensors.end();
    std::string text =
        own && found.checkpoint.generation == EagleGeneration::eagle3 ? "its own" : "the target's";
    const std::string map = found.checkpoint.outer_name("d2t");
    if (const auto tokens = found.checkpoint.weights->read_integers(map); !ids.empty()) {
        const TokenId row =
            found.rows.rows.empty() ? static_cast<TokenId>(ids.size() - 1) : found.rows.rows.back();
        text += fmt::format("; rows for {} of {} tokens, {} to {}; {}{}", ids.size(), found.vocab,
                            ids.front(), ids.back(),
                            !tokens.ok()                   ? "d2t is missing"
                            : (*tokens)[row] == ids.back() ? "d2t holds tokens"
                                                           : "d2t holds offsets",
                            found.rows.rows.empty() ? "" : ", not in the order of tokens");
    }
    out.add("LM head", text);
}

void add_eagle_facts(const EagleContents& found, Inspection& out) {
    const EagleCheckpoint& checkpoint = found.checkpoint;
    const EagleNorms& norms = checkpoint.norms;
    if (!checkpoint.verifier.empty()) out.add("made for", checkpoint.verifier);
    const std::vector<int>& layers = checkpoint.aux_layers;
    const std::string counted = checkpoint.aux_field.empty() ? "EAGLE-3's default"
                                : checkpoint.aux_offset == 0
                                    ? "as the file counts"
                                    : "the file counts layers by their output, one less";
    std::string text = "the target's last hidden state";
    if (checkpoint.generation == EagleGeneration::eagle3)
        text = layers.empty() ? "not named: EAGLE-3's default are the inputs of layers 2, L / 2 and L - 3"
                              : fmt::format("the inputs of layers {} ({})", fmt::join(layers, ", "), counted);
    out.facts.push_back({"feature layers", text, layers});
    text = norms.head ? "of the LM head's input" : "none of the LM head's input";
    for (const auto& [on, what] : {std::pair(norms.output, "of the state for the next level"),
                                   {norms.before_residual, "before the residual"},
                                   {norms.before_fc, "of all features before fc"},
                                   {norms.of_features, "of each feature before fc"}})
        if (on) text += fmt::format(", {}", what);
    if (checkpoint.generation == EagleGeneration::eagle3) out.add("norms", text);
    const TensorInfo* embedding = checkpoint.embedding;
    out.add("embeddings",
            embedding == nullptr ? "the target's" : fmt::format("its own, {} rows", embedding->rows()));
    add_head(found, out);
    append_notes(out.odd, checkpoint.notes);
}

}  // namespace

Result<EagleContents> read_eagle_contents(const Contents& contents, const ModelFile* target) {
    const ModelConfig config = target == nullptr ? described_target(contents) : target->config;
    EagleContents out;
    out.vocab = config.vocab;
    DS_ASSIGN(out.checkpoint,
              read_eagle_checkpoint(is_eagle3(contents) ? EagleGeneration::eagle3 : EagleGeneration::eagle2,
                                    contents.path, config));
    DS_TRY(check_tensors(out));
    DS_TRY(read_rows(out));
    return out;
}

void inspect_eagle(const Contents& contents, const ModelFile* target, Inspection& out) {
    const char* id = is_eagle3(contents) ? "eagle3" : "eagle2";
    const LayoutName layout = layout_names[static_cast<std::size_t>(layout_of(contents))];
    out.kind = fmt::format("EAGLE-{} drafter, layout {}", id + 5, layout.text);
    add_sizes(contents, false, out);
    Result<EagleContents> found = read_eagle_contents(contents, target);
    Result<std::string> use = fmt::format("--drafter {}:{}", id, contents.path);
    if (!found.ok()) use = found.error();
    // A checkpoint of another target is described, too.
    if (!found.ok() && target != nullptr) found = read_eagle_contents(contents, nullptr);
    if (found.ok()) add_eagle_facts(*found, out);
    if (found.ok() && target != nullptr) compare_eagle(found->checkpoint, *target, out);
    add_stacks(fmt::format("{}/{}", id, layout.id), use, out);
}

}  // namespace draftscope
