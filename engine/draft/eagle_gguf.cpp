#include <array>
#include <utility>

#include "engine/draft/eagle_checkpoint.h"
#include "engine/formats/architecture.h"
#include "engine/formats/config_keys.h"
#include "engine/formats/gguf_model.h"

namespace draftscope {
namespace {

Status read_shape(const GgufFile& file, const GgufKeys& keys, EagleCheckpoint& out) {
    LayerShape& shape = out.shape;
    DS_ASSIGN(const int layers, keys.required("block_count"));
    if (layers != 1) return bad_input("{}: 'eagle3.block_count' is {}, expected 1", file.path(), layers);
    DS_ASSIGN(shape.hidden, keys.required("embedding_length"));
    DS_ASSIGN(shape.heads, keys.required("attention.head_count"));
    DS_ASSIGN(const auto kv_heads, keys.optional("attention.head_count_kv"));
    shape.kv_heads = kv_heads.value_or(shape.heads);
    DS_ASSIGN(shape.ffn, keys.required("feed_forward_length"));
    DS_ASSIGN(const auto key_length, keys.optional("attention.key_length"));
    DS_ASSIGN(const auto rotated, keys.optional("rope.dimension_count"));
    shape.head_dim = key_length.value_or(rotated.value_or(shape.hidden / shape.heads));
    DS_TRY(check_head_sizes(file.path(), shape.heads, shape.kv_heads, shape.head_dim));
    if (rotated.value_or(shape.head_dim) != shape.head_dim)
        return bad_input("{}: '{}' is {}, but heads are {} wide; partial rotation is not supported",
                         file.path(), keys.key("rope.dimension_count"), *rotated, shape.head_dim);
    DS_ASSIGN(const auto eps, keys.positive("attention.layer_norm_rms_epsilon"));
    shape.norm_eps = static_cast<float>(eps.value_or(1e-6f));
    DS_ASSIGN(out.target_hidden, keys.required("target_hidden_size"));
    return {};
}

/// Older conversions call the key extract_layers; both count the layer that the residual stream enters.
Status read_layers(const GgufFile& file, EagleCheckpoint& out) {
    for (const char* key : {"eagle3.target_layers", "eagle3.extract_layers"}) {
        DS_ASSIGN(const auto layers, file.integers(key));
        if (!layers) continue;
        out.aux_layers.clear();
        for (const std::int64_t layer : *layers) {
            if (layer < 0 || layer > max_layers)
                return bad_input("{}: metadata '{}' contains {}, expected layer numbers from 0", file.path(),
                                 key, layer);
            out.aux_layers.push_back(static_cast<int>(layer));
        }
        if (!out.aux_layers.empty()) out.aux_field = fmt::format("{}: metadata '{}'", file.path(), key);
        return {};
    }
    return {};
}

/// Checks the keys that nobody reads.
Status check_metadata(const GgufFile& file, Notes& notes) {
    nlohmann::json rest = file.values_below("eagle3.");
    for (const char* key :
         {"target_layers", "extract_layers", "target_hidden_size", "norm_before_residual", "norm_before_fc"})
        rest.erase(key);
    return check_keys(file.path(), "eagle3.", rest, gguf_model_keys, notes);
}

}  // namespace

Status read_eagle_gguf(GgufFile file, const ModelConfig& target, EagleCheckpoint& out) {
    out.layout = EagleLayout::gguf;
    DS_ASSIGN(const auto architecture, file.text("general.architecture"));
    if (architecture.value_or("") != "eagle3") {
        return bad_input("{}: architecture '{}' is not EAGLE-3; llama.cpp's EAGLE-3 files have 'eagle3'",
                         file.path(), printable(architecture.value_or("(none)")));
    }
    DS_TRY(check_metadata(file, out.notes));
    const GgufKeys keys(file, "eagle3");
    DS_TRY(read_shape(file, keys, out));
    if (out.target_hidden != target.hidden) {
        return bad_input(
            "{}: 'eagle3.target_hidden_size' is {}, but the target has {}: this drafter was made "
            "for another target",
            file.path(), out.target_hidden, target.hidden);
    }
    DS_TRY(read_layers(file, out));
    DS_ASSIGN(const auto context, keys.optional("context_length"));
    out.trained_positions = context.value_or(0);
    constexpr std::array<std::string_view, 2> divisors = {"blk.0.rope_freqs.weight", "rope_freqs.weight"};
    DS_ASSIGN(out.rotation,
              read_gguf_rope(file, "eagle3", out.shape.head_dim, context.value_or(target.context), divisors));
    out.used.insert(divisors.begin(), divisors.end());
    DS_ASSIGN(const auto residual, file.boolean("eagle3.norm_before_residual"));
    out.norms.before_residual = residual.value_or(false);
    DS_ASSIGN(const auto before_fc, file.boolean("eagle3.norm_before_fc"));
    out.norms.before_fc = before_fc.value_or(false);
    out.weights = make_gguf_weights(std::move(file), out.shape.head_dim, true);
    return {};
}

}  // namespace draftscope
