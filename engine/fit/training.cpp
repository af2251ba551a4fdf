#include "engine/fit/training.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/fields.h"
#include "engine/draft/registry.h"

namespace draftscope::fit {
namespace {

/// Row i of an integer column, or a matrix of `cols` columns.
template <typename T>
void add_column(TrainingData& data, const std::string& name, std::string_view type,
                const std::vector<T>& values, std::int64_t rows) {
    std::vector<std::int64_t> shape{rows};
    if (const auto size = static_cast<std::int64_t>(values.size()); rows > 0 && size != rows)
        shape.push_back(size / rows);
    data.add(name, type, std::move(shape), std::as_bytes(std::span(values)));
}

void add_rows(TrainingData& data, const std::string& name, const Bf16Rows& rows) {
    data.add(name, "BF16", {rows.rows(), rows.width()}, rows.bytes());
}

void add_samples(TrainingData& data, const std::string& kind, const SampleRows& rows) {
    add_rows(data, kind + ".hidden", rows.hidden);
    add_column(data, kind + ".level", "U8", rows.level, rows.rows());
    add_column(data, kind + ".held_out", "U8", rows.held_out, rows.rows());
}

void add_head(TrainingData& data, const Teacher& teacher, const HeadFactors& start) {
    data.add(f16_tensor("target_rows", *teacher.target_rows, teacher.support));
    if (teacher.drafter_rows != teacher.target_rows)
        data.add(f16_tensor("drafter_rows", *teacher.drafter_rows, teacher.support));
    const auto add_start = [&](const std::string& name, const Dense& values) {
        data.add(name, "F32", {values.rows, values.cols}, std::as_bytes(values.values()));
    };
    for (std::size_t l = 0; l < start.down.size(); ++l) add_start(fmt::format("down.{}", l), start.down[l]);
    add_start("up", start.up);
}

constexpr auto kl_fields =
    join(DS_FIELDS(KlOptions, epochs, batch, rate, level_decay),
         field("drafted_share", &KlOptions::draft_share), DS_FIELDS(KlOptions, teacher, negatives, seed));
constexpr auto router_fields = DS_FIELDS(RouterOptions, width, epochs, batch, rate, seed);
constexpr auto joint_fields = DS_FIELDS(JointOptions, steps, epochs, batch, warmup, rate, lambda, seed);
constexpr auto shape_fields =
    join(DS_FIELDS(LayerShape, hidden, heads, kv_heads, head_dim), field("intermediate", &LayerShape::ffn),
         field("eps", &LayerShape::norm_eps));

template <typename Fields, typename Row>
void add_settings(TrainingData& data, const Fields& fields, const Row& row) {
    const auto add = [&](const auto& one) { data.settings[one.key] = fmt::format("{}", row.*one.get); };
    std::apply([&](const auto&... one) { (add(one), ...); }, fields);
}

/// Names of the trained tensors in the checkpoint, by the names of the trainer's module.
std::string tensor_names(EagleCheckpoint& checkpoint, bool eagle3) {
    std::vector<std::pair<std::string, std::string>> names{
        {"fc", "fc.weight"}, {"post", "layers.0.post_attention_layernorm.weight"}};
    for (const char* part : {"q", "k", "v", "o"})
        names.emplace_back(part, fmt::format("layers.0.self_attn.{}_proj.weight", part));
    for (const char* part : {"gate", "up", "down"})
        names.emplace_back(part, fmt::format("layers.0.mlp.{}_proj.weight", part));
    if (checkpoint.has("fc.bias")) names.emplace_back("bias", "fc.bias");
    if (eagle3) {
        names.emplace_back("of_input", "layers.0.input_layernorm.weight");
        names.emplace_back("of_hidden", "layers.0.hidden_norm.weight");
        names.emplace_back("final", "norm.weight");
    }
    std::string text;
    for (const auto& [ours, official] : names) text += ours + "=" + checkpoint.name(official) + "\n";
    return text;
}

/// The rotation's frequencies: its angles at position 1.
std::vector<float> frequencies(const kernels::RopeTable& rope) {
    const int half = rope.head_dim / 2;
    std::vector<float> found;
    for (int i = half; i < 2 * half; ++i) found.push_back(std::atan2(rope.sin[i], rope.cos[i]));
    return found;
}

}  // namespace

Result<EagleCheckpoint> open_joint_drafter(const std::string& id, const std::string& folder,
                                           const Target& target) {
    const auto generation = drafter_traits(id).eagle;
    if (!generation) return bad_input("--joint: trains only eagle2 and eagle3 drafters, not {}", id);
    DS_ASSIGN(EagleCheckpoint checkpoint, open_eagle_checkpoint(*generation, folder, target));
    const std::string& path = checkpoint.weights->path();
    if (*generation == EagleGeneration::eagle3 && (checkpoint.has("lm_head.weight") || checkpoint.has("d2t")))
        return bad_input("{}: --joint replaces the head, but this drafter has its own lm_head.weight", path);
    if (checkpoint.rotation.scale != 1)
        return bad_input("{}: --joint does not train with YaRN's attention factor", path);
    if (checkpoint.layout == EagleLayout::gguf || checkpoint.norms.before_fc ||
        checkpoint.norms.of_features || checkpoint.norms.output || !checkpoint.norms.head ||
        checkpoint.target_hidden != checkpoint.shape.hidden)
        return bad_input(
            "{}: --joint trains safetensors checkpoints of the target's hidden size, without the variants "
            "norm_before_fc, fc_norm and norm_output",
            path);
    return checkpoint;
}

TrainingData divergence_data(const Samples& samples, const Teacher& teacher, const HeadFactors& start,
                             const KlOptions& options) {
    TrainingData data;
    data.settings = {{"kind", "divergence"}, {"held_out_rows", std::to_string(max_eval_rows)}};
    add_settings(data, kl_fields, options);
    add_samples(data, "text", samples.text);
    add_rows(data, "text.teacher", samples.text.teacher);
    add_samples(data, "drafted", samples.draft);
    add_head(data, teacher, start);
    return data;
}

TrainingData router_data(const SampleRows& rows, RouterInput input, std::span<const std::int32_t> group_of,
                         int groups, const RouterOptions& options) {
    TrainingData data;
    data.settings = {{"kind", "router"}, {"groups", std::to_string(groups)}};
    add_settings(data, router_fields, options);
    if (input == RouterInput::hidden) {
        add_rows(data, "inputs.0", rows.hidden);
    } else {
        add_rows(data, "inputs.0", rows.embedding);
        add_rows(data, "inputs.1", rows.parent);
    }
    add_column(data, "held_out", "U8", rows.held_out, rows.rows());
    add_column(data, "top", "I32", rows.top, rows.rows());
    data.add("group_of", "I32", {static_cast<std::int64_t>(group_of.size())}, std::as_bytes(group_of));
    return data;
}

TrainingData joint_data(const JointFit& joint, const Teacher& teacher, const HeadFactors& start,
                        const TextSplit& split) {
    TrainingData data;
    EagleCheckpoint& checkpoint = joint.checkpoint;
    const bool eagle3 = checkpoint.has("layers.0.hidden_norm.weight");
    data.settings = {{"kind", "joint"},
                     {"recordings", fmt::format("{}", fmt::join(joint.recordings, "\n"))},
                     {"drafter", checkpoint.weights->path()},
                     {"drafter_out", joint.drafter_out},
                     {"names", tensor_names(checkpoint, eagle3)},
                     {"generation", eagle3 ? "3" : "2"},
                     {"norm_before_residual", checkpoint.norms.before_residual ? "1" : "0"},
                     {"frequencies", fmt::format("{}", fmt::join(frequencies(checkpoint.rope), " "))}};
    add_settings(data, joint_fields, joint.options);
    add_settings(data, shape_fields, checkpoint.shape);
    for (const bool held : {false, true}) {
        const std::vector<int> texts = split.texts(held);
        const auto bytes = std::as_bytes(std::span(texts));
        data.add({held ? "held" : "train", "I32", {std::ssize(texts)}, {bytes.begin(), bytes.end()}});
    }
    const int hidden = checkpoint.shape.hidden, vocab = joint.target.config().vocab, block = 1024;
    FittedTensor embedding{"embedding", "F16", {vocab, hidden}, {}};
    const kernels::EmbeddingTable draft_table = own_embeddings(checkpoint, joint.target);
    const kernels::EmbeddingTable& table =
        checkpoint.embedding == nullptr ? joint.target.embeddings() : draft_table;
    for (int first = 0; first < vocab; first += block) {
        Dense rows(std::min(vocab - first, block), hidden);
        for (int r = 0; r < rows.view().rows; ++r) table.read(first + r, rows.view().row_data(r));
        const std::vector<std::byte> bytes = f16_tensor({}, rows).bytes;
        embedding.bytes.insert(embedding.bytes.end(), bytes.begin(), bytes.end());
    }
    data.add(std::move(embedding));
    add_head(data, teacher, start);
    return data;
}

}  // namespace draftscope::fit
