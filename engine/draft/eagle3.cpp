#include <cstring>
#include <utility>
#include <vector>

#include "engine/draft/drafters.h"
#include "engine/draft/eagle_checkpoint.h"
#include "engine/draft/eagle_drafter.h"
#include "engine/model/weight_packing.h"
#include "kernels/matmul.h"
#include "kernels/norm.h"

namespace draftscope {
namespace {

/// EAGLE-3 (arXiv 2503.01840): three residual-stream snapshots of the target fused by fc, one layer whose
/// attention reads [norm(embedding); norm(hidden)], the hidden recycled before the final norm.
class Eagle3Model final : public EagleModel {
  public:
    Eagle3Model(EagleCheckpoint checkpoint, const Target& target)
        : checkpoint_(std::move(checkpoint)), target_(target) {}

    Status load(kernels::Exec& exec, kernels::Precision precision) {
        const int d = checkpoint_.shape.hidden;
        const WeightSource& source = *checkpoint_.weights;
        const std::string prefix =
            source.find("midlayer.hidden_norm.weight") != nullptr ? "midlayer." : "layers.0.";
        const StackedTensor fc{"fc.weight", d};
        const int fused = static_cast<int>(checkpoint_.aux_layers.size()) * d;
        DS_ASSIGN(
            fc_, pack_stacked(exec, precision, source, {&fc, 1}, fused, "hidden size and one per aux layer"));
        DS_ASSIGN(layer_, load_eagle_layer(exec, precision, checkpoint_, prefix, 2 * d));
        DS_ASSIGN(hidden_norm_, read_vector(source, prefix + "hidden_norm.weight", d));
        DS_ASSIGN(input_norm_, read_vector(source, prefix + "input_layernorm.weight", d));
        DS_ASSIGN(final_norm_, read_vector(source, "norm.weight", d));
        return load_head(exec, precision);
    }

    const LayerShape& shape() const override { return checkpoint_.shape; }
    const kernels::RopeTable& rope() const override { return checkpoint_.rope; }
    std::span<const int> aux_layers() const override { return checkpoint_.aux_layers; }
    void embed(std::span<const TokenId> tokens, Rows<float> out) const override {
        embed_for_eagle(checkpoint_, target_, tokens, out);
    }
    void take_features(kernels::Exec& exec, Rows<const float>, Rows<const float> aux,
                       Rows<float> out) override {
        kernels::matmul(exec, fc_, aux, out);
    }
    void run(kernels::Exec& exec, DecoderBatch& batch, Rows<float> inputs, Rows<float> out) override {
        const int d = checkpoint_.shape.hidden;
        const float eps = checkpoint_.shape.norm_eps;
        const Rows<float> embedding(inputs.data, inputs.rows, d, inputs.stride);
        const Rows<float> hidden(inputs.data + d, inputs.rows, d, inputs.stride);
        if (!checkpoint_.norm_before_residual) copy_rows(hidden, out);
        kernels::rms_norm(exec, embedding, input_norm_, eps, embedding);
        kernels::rms_norm(exec, hidden, hidden_norm_, eps, hidden);
        if (checkpoint_.norm_before_residual) copy_rows(hidden, out);
        LayerPass pass(exec, checkpoint_.shape, checkpoint_.rope, batch);
        pass.attend(layer_, 0, inputs, out);
        pass.feed_forward(layer_, out);
    }
    Rows<const float> head_rows(kernels::Exec& exec, Rows<const float> out) override {
        normed_.resize(static_cast<std::size_t>(out.rows) * static_cast<std::size_t>(out.cols));
        const Rows<float> normed(normed_.data(), out.rows, out.cols);
        kernels::rms_norm(exec, out, final_norm_, checkpoint_.shape.norm_eps, normed);
        return normed;
    }
    const kernels::Matrix* own_head() const override { return own_head_.empty() ? nullptr : &own_head_; }
    std::span<const TokenId> own_head_ids() const override { return head_ids_; }
    std::size_t weight_bytes() const override { return layer_.bytes(); }

  private:
    static void copy_rows(Rows<const float> from, Rows<float> to) {
        for (int r = 0; r < to.rows; ++r)
            std::memcpy(to.row_data(r), from.row_data(r), to.row(r).size_bytes());
    }

    /// lm_head.weight may be absent (the target's serves), full, or trimmed with d2t: an *offset* per draft
    /// id.
    Status load_head(kernels::Exec& exec, kernels::Precision precision) {
        const WeightSource& source = *checkpoint_.weights;
        const TensorInfo* head = source.find("lm_head.weight");
        if (head == nullptr) return {};
        const int d = checkpoint_.shape.hidden;
        const int vocab = target_.config().vocab;
        const auto rows = static_cast<int>(head->rows());
        const StackedTensor part{"lm_head.weight", rows};
        DS_ASSIGN(own_head_, pack_stacked(exec, precision, source, {&part, 1}, d, "hidden size"));
        if (rows == vocab) return {};
        if (rows > vocab) {
            return bad_input("{}: lm_head.weight has {} rows, the target's vocabulary {}", source.path(),
                             rows, vocab);
        }
        DS_ASSIGN(const auto offsets, source.read_integers("d2t"));
        if (static_cast<int>(offsets.size()) != rows) {
            return bad_input("{}: d2t has {} entries for {} rows of lm_head.weight", source.path(),
                             offsets.size(), rows);
        }
        for (int i = 0; i < rows; ++i) {
            const std::int64_t id = i + offsets[static_cast<std::size_t>(i)];
            const bool rising = head_ids_.empty() || id > head_ids_.back();
            if (id < 0 || id >= vocab || !rising) {
                return bad_input("{}: d2t[{}] = {} gives token {}; expected rising ids below {}",
                                 source.path(), i, offsets[static_cast<std::size_t>(i)], id, vocab);
            }
            head_ids_.push_back(static_cast<TokenId>(id));
        }
        return {};
    }

    EagleCheckpoint checkpoint_;
    const Target& target_;
    kernels::Matrix fc_;  ///< [d, aux layers * d]
    DecoderLayer layer_;
    std::vector<float> hidden_norm_, input_norm_, final_norm_;
    kernels::Matrix own_head_;
    std::vector<TokenId> head_ids_;  ///< target id per row of a trimmed own head
    std::vector<float> normed_;
};

}  // namespace

Result<std::unique_ptr<Drafter>> make_eagle3(const std::string& path, const Target& target,
                                             kernels::Exec& exec) {
    DS_ASSIGN(EagleCheckpoint checkpoint, open_eagle_checkpoint(path, target));
    auto model = std::make_unique<Eagle3Model>(std::move(checkpoint), target);
    DS_TRY(model->load(exec, target.precision()));
    return make_eagle_drafter(std::move(model), "eagle3");
}

}  // namespace draftscope
