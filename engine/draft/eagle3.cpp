#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/numel.h"
#include "engine/draft/drafter_files.h"
#include "engine/draft/eagle_drafter.h"
#include "engine/draft/head_rows.h"
#include "engine/draft/registry.h"
#include "engine/weights/weight_packing.h"

namespace draftscope {
namespace {

/// EAGLE-3's model (arXiv 2503.01840): fc fuses three residual-stream snapshots of the target. The attention
/// of the single layer reads [norm(embedding); norm(hidden)]. The next level takes the hidden before the
/// final norm.
class Eagle3Model final : public EagleModel {
  public:
    Eagle3Model(EagleCheckpoint checkpoint, const Target& target)
        : EagleModel(std::move(checkpoint), target) {}

    Status load(kernels::Backend& backend, kernels::Precision precision, const DrafterSource& options) {
        const int d = checkpoint_.shape.hidden;
        const WeightSource& source = *checkpoint_.weights;
        const StackedTensor fc{checkpoint_.name("fc.weight"), d};
        DS_ASSIGN(fc_, pack_stacked(backend, precision, source, {&fc, 1}, feature_width(),
                                    "hidden size and one of the target's per aux layer"));
        DS_ASSIGN(layer_, load_eagle_layer(backend, precision, checkpoint_, 2 * d));
        const auto norm = [&](std::string_view name, int size) {
            return read_vector(source, checkpoint_.name(name), size);
        };
        DS_ASSIGN(const auto hidden_norm, norm("layers.0.hidden_norm.weight", d));
        DS_ASSIGN(const auto input_norm, norm("layers.0.input_layernorm.weight", d));
        DS_ASSIGN(const auto final_norm, norm("norm.weight", d));
        DS_TRY(load_feature_norms());
        DS_TRY(load_head(backend, precision, options));
        DS_TRY(pass_.prepare(backend, checkpoint_.shape, checkpoint_.rope, {&layer_, 1}, 2 * d));
        const float* last = pass_.keep(final_norm);
        const bool given_out = checkpoint_.norms.output;
        const bool head_norm = checkpoint_.norms.head && !given_out;
        pass_.set_joined({pass_.keep(input_norm), pass_.keep(hidden_norm), given_out ? last : nullptr,
                          head_norm ? last : nullptr, checkpoint_.norms.before_residual});
        if (!feature_norm_.empty()) feature_norm_on_device_ = pass_.keep(feature_norm_);
        return checkpoint_.check_used();
    }

    std::span<const int> aux_layers() const override { return checkpoint_.aux_layers; }
    int feature_width() const override {
        return static_cast<int>(checkpoint_.aux_layers.size()) * checkpoint_.target_hidden;
    }
    const kernels::Matrix* own_lm_head() const override {
        return own_lm_head_.empty() ? nullptr : &own_lm_head_;
    }
    std::span<const TokenId> own_lm_head_ids() const override { return vocab_.ids; }
    std::size_t weight_bytes() const override { return layer_.bytes(); }
    std::size_t feature_weight_bytes() const override { return fc_.bytes(); }
    void enqueue_features(const float* d_features, int rows) override {
        kernels::Backend& backend = pass_.device();
        const int d = checkpoint_.shape.hidden, width = feature_width();
        const kernels::DeviceMatrix& fc = fc_.device_matrix();
        if (!d_features_.reserve(backend, numel(rows, fc.stride))) {
            backend.set_out_of_memory("the drafter's rows");
            return;
        }
        kernels::FusedMatmulOp op;
        op.product.weights = fc;
        op.product.x = d_features_;
        op.product.rows = rows;
        op.product.y = pass_.inputs() + d;
        op.product.y_stride = 2 * d;
        if (feature_norm_on_device_ == nullptr)
            op.norm = {.x = d_features, .x_stride = width};
        else
            enqueue_norms(d_features, rows);
        backend.fused_matmul(op);
    }

  private:
    /// Loads the norms before fc that some checkpoints have: one over all features, or one per feature.
    Status load_feature_norms() {
        const WeightSource& source = *checkpoint_.weights;
        const std::string together = checkpoint_.name("input_norm.weight");
        const bool has_together = source.find(together) != nullptr;
        const bool has_each = source.find(checkpoint_.name("fc_norm.0.weight")) != nullptr;
        if (has_together != checkpoint_.norms.before_fc || has_each != checkpoint_.norms.of_features) {
            return bad_input(
                "{}: the config sets norm_before_fc to {} and fc_norm to "
                "{}, but tensor '{}' is {} and 'fc_norm.0.weight' is {}",
                source.path(), checkpoint_.norms.before_fc, checkpoint_.norms.of_features, together,
                has_together ? "present" : "missing", has_each ? "present" : "missing");
        }
        if (has_together) {
            DS_ASSIGN(feature_norm_, read_vector(source, together, feature_width()));
        }
        for (std::size_t i = 0; has_each && i < checkpoint_.aux_layers.size(); ++i) {
            const std::string name = checkpoint_.name(fmt::format("fc_norm.{}.weight", i));
            DS_ASSIGN(const auto part, read_vector(source, name, checkpoint_.target_hidden));
            feature_norm_.insert(feature_norm_.end(), part.begin(), part.end());
        }
        return {};
    }

    /// Normalises the features, rounded to activations, into d_features_.
    void enqueue_norms(const float* d_features, int rows) {
        kernels::Backend& backend = pass_.device();
        const int all = feature_width(), stride = fc_.device_matrix().stride;
        kernels::RmsNormOp norm;
        norm.x_stride = all;
        norm.rows = rows;
        norm.width = checkpoint_.norms.of_features ? checkpoint_.target_hidden : all;
        norm.eps = checkpoint_.shape.norm_eps;
        norm.half_stride = stride;
        const float* rounded = round_features(d_features, rows);
        for (int first = 0; first < all && rounded != nullptr; first += norm.width) {
            norm.x = rounded + first;
            norm.weight = feature_norm_on_device_ + first;
            norm.half = backend.at(d_features_, first);
            norm.half_columns = first + norm.width == all ? stride - first : norm.width;
            backend.rms_norm(norm);
        }
    }

    /// Returns the features with the precision of activations.
    const float* round_features(const float* d_features, int rows) {
        kernels::Backend& backend = pass_.device();
        const int all = feature_width(), stride = fc_.device_matrix().stride;
        if (!d_rounded_.reserve(backend, numel(rows, all) * sizeof(float)) ||
            !d_zeros_.reserve(backend, all * sizeof(float))) {
            backend.set_out_of_memory("the drafter's rows");
            return nullptr;
        }
        backend.to_activations({d_features, all}, rows, all, d_features_, stride);
        kernels::AddOp widen;  // to f32
        widen.x = d_zeros_.as<float>();
        widen.rows = rows;
        widen.cols = all;
        widen.base = d_features_;
        widen.base_stride = stride;
        widen.y = d_rounded_.as<float>();
        widen.y_stride = all;
        backend.add(widen);
        return d_rounded_.as<float>();
    }

    /// Loads lm_head.weight: absent (the target's is used), full, or trimmed with d2t. Without one, d2t
    /// selects rows of the target's, as it does with head=target.
    Status load_head(kernels::Backend& backend, kernels::Precision precision, const DrafterSource& options) {
        const WeightSource& source = *checkpoint_.weights;
        constexpr std::array<std::string_view, 2> heads = {"own", "target"}, readings = {"offsets", "tokens"};
        DS_ASSIGN(const std::string wanted, options.choice("head", heads));
        DS_ASSIGN(const std::string reading, options.choice("d2t", readings));
        HeadRowMaps maps = {checkpoint_.name("d2t"), checkpoint_.name("t2d"),
                            checkpoint_.layout != EagleLayout::gguf, checkpoint_.own_vocab,
                            checkpoint_.name("lm_head.weight")};
        const TensorInfo* head = source.find(maps.head);
        if (options.options.contains("d2t")) {
            maps.read_offsets = reading == "offsets";
            if (source.find(maps.to_target) == nullptr)
                return bad_input("{}: d2t={}: tensor '{}' is missing", source.path(), reading,
                                 maps.to_target);
        }
        if (options.options.contains("head") && wanted == "own" && head == nullptr)
            return bad_input("{}: head=own: tensor '{}' is missing", source.path(), maps.head);
        if (wanted == "target") head = nullptr;
        const int d = checkpoint_.shape.hidden, vocab = target_.config().vocab;
        if (head == nullptr && d != target_.config().hidden) {
            return bad_input(
                "{}: the hidden size {} differs from the target's {}, which "
                "requires an LM head in the checkpoint, but tensor '{}' is {}",
                source.path(), d, target_.config().hidden, maps.head,
                wanted == "target" ? "not used" : "missing");
        }
        if (head == nullptr) return select_target_rows(backend, maps);
        const int max_rows = std::max(vocab, checkpoint_.own_vocab);
        if (head->rows() > max_rows) {
            return bad_input("{}: {} has {} rows, but the target's vocabulary has {}", source.path(),
                             maps.head, head->rows(), max_rows);
        }
        const StackedTensor part{maps.head, static_cast<int>(head->rows())};
        DS_ASSIGN(own_lm_head_, pack_stacked(backend, precision, source, {&part, 1}, d, "hidden size"));
        if (checkpoint_.draft_vocab > 0 && checkpoint_.draft_vocab != part.rows)
            add_note(checkpoint_.notes, "{}: {} has {} rows, though draft_vocab_size is {}; the rows count",
                     source.path(), maps.head, part.rows, checkpoint_.draft_vocab);
        const TensorInfo* map = source.find(maps.to_target);
        if (part.rows == vocab && (map == nullptr || map->cols() != vocab)) {
            if (map != nullptr)
                add_note(checkpoint_.notes, "{}: {} has a row for each token; {} with {} entries is not used",
                         source.path(), maps.head, maps.to_target, map->cols());
            return {};
        }
        DS_ASSIGN(vocab_, read_head_rows(source, maps, part.rows, vocab, checkpoint_.notes));
        own_lm_head_ = select_rows(backend, std::move(own_lm_head_), vocab_);
        return {};
    }

    Status select_target_rows(kernels::Backend& backend, const HeadRowMaps& maps) {
        const WeightSource& source = *checkpoint_.weights;
        const int vocab = target_.config().vocab;
        if (source.find(maps.to_target) == nullptr && source.find(maps.marks) == nullptr) {
            if (checkpoint_.draft_vocab > 0 && checkpoint_.draft_vocab < vocab)
                add_note(
                    checkpoint_.notes,
                    "{}: draft_vocab_size is {}, but {} and {} are missing; the target's whole head drafts",
                    source.path(), checkpoint_.draft_vocab, maps.head, maps.to_target);
            return {};
        }
        DS_ASSIGN(vocab_, read_head_rows(source, maps, std::nullopt, vocab, checkpoint_.notes));
        if (vocab_.ids.empty()) return {};
        add_note(checkpoint_.notes, "{}: {} is {}; the target's rows of the {} tokens of {} draft",
                 source.path(), maps.head, source.find(maps.head) != nullptr ? "not used" : "missing",
                 vocab_.ids.size(), source.find(maps.to_target) != nullptr ? maps.to_target : maps.marks);
        own_lm_head_ = target_.lm_head().gather_rows(backend.pool(), vocab_.ids);
        return {};
    }

    kernels::ActivationBuffer d_features_;  ///< input of fc
    kernels::Matrix own_lm_head_;
    HeadRows vocab_;  ///< of a trimmed LM head
    const float* feature_norm_on_device_ = nullptr;
    kernels::DeviceBuffer d_rounded_, d_zeros_;  ///< of round_features()
    std::vector<float> feature_norm_;            ///< over the concatenated features; empty = none
};

/// `path`: a folder or file in a published layout (docs/FORMATS.md), or "synthetic:NAME" for that synthetic
/// target. eagle_options() may follow.
Result<std::unique_ptr<Drafter>> make_eagle3(const std::string& path, const Target& target,
                                             kernels::Backend& backend) {
    DS_ASSIGN(const DrafterSource source, parse_drafter_source(path, eagle_options(EagleGeneration::eagle3)));
    DS_ASSIGN(EagleCheckpoint checkpoint, open_eagle_checkpoint(EagleGeneration::eagle3, path, target));
    auto model = std::make_unique<Eagle3Model>(std::move(checkpoint), target);
    DS_TRY(model->load(backend, target.lm_head().precision(), source));
    return make_eagle_drafter(std::move(model), "eagle3");
}

}  // namespace

DrafterInfo describe_eagle3() {
    return {.id = "eagle3",
            .name = "EAGLE-3",
            .paper = "EAGLE-3, arXiv 2503.01840",
            .help =
                "one decoder layer over three fused hidden states of the target; a folder as SafeAILab, "
                "SpecForge or speculators publish it, or a GGUF file",
            .has_synthetic = true,
            .eagle = EagleGeneration::eagle3,
            .options = eagle_options(EagleGeneration::eagle3),
            .make = make_eagle3};
}

}  // namespace draftscope
