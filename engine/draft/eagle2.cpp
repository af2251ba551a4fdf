#include <span>
#include <utility>
#include <vector>

#include "engine/draft/eagle_drafter.h"
#include "engine/draft/registry.h"
#include "engine/weights/weight_packing.h"

namespace draftscope {
namespace {

/// EAGLE-2's model: one llama layer without input norm after fc [embedding; hidden]. The output, without a
/// final norm, feeds both the target's LM head and the next level.
class Eagle2Model final : public EagleModel {
  public:
    Eagle2Model(EagleCheckpoint checkpoint, const Target& target)
        : EagleModel(std::move(checkpoint), target) {}

    Status load(kernels::Backend& backend, kernels::Precision precision) {
        const int d = checkpoint_.shape.hidden;
        const WeightSource& source = *checkpoint_.weights;
        const StackedTensor fc{checkpoint_.name("fc.weight"), d};
        const std::string bias = checkpoint_.name("fc.bias");
        DS_ASSIGN(fc_, pack_stacked(backend, precision, source, {&fc, 1}, 2 * d, "hidden size and twice it"));
        const bool has_bias = source.find(bias) != nullptr;
        if (checkpoint_.fc_bias.value_or(has_bias) != has_bias) {
            return bad_input("{}: tensor '{}' is {}, but config.json says \"bias\": {}", source.path(), bias,
                             has_bias ? "present" : "missing", has_bias ? "false" : "true");
        }
        if (has_bias) {
            DS_ASSIGN(fc_bias_, read_vector(source, bias, d));
        }
        DS_ASSIGN(layer_, load_eagle_layer(backend, precision, checkpoint_, d));
        DS_TRY(pass_.prepare(backend, checkpoint_.shape, checkpoint_.rope, {&layer_, 1}, d));
        pass_.set_fused(fc_, pass_.keep(fc_bias_));
        if (checkpoint_.has("lm_head.weight"))
            add_note(checkpoint_.notes,
                     "{}: tensor '{}' is not used: EAGLE-2 drafts with the target's LM head", source.path(),
                     checkpoint_.name("lm_head.weight"));
        return checkpoint_.check_used();
    }

    std::span<const int> aux_layers() const override { return checkpoint_.aux_layers; }
    int feature_width() const override { return checkpoint_.shape.hidden; }
    std::size_t weight_bytes() const override {
        return fc_.bytes() + fc_bias_.size() * sizeof(float) + layer_.bytes();
    }

    void enqueue_features(const float* d_features, int rows) override {
        const int d = checkpoint_.shape.hidden;
        pass_.device().copy_rows({.from = d_features,
                                  .from_stride = d,
                                  .count = rows,
                                  .cols = d,
                                  .to = pass_.inputs() + d,
                                  .to_stride = 2 * d});
    }

  private:
    std::vector<float> fc_bias_;  ///< [d] or empty
};

/// `path`: a folder or file in a published layout (docs/FORMATS.md), or "synthetic:NAME" for that synthetic
/// target. eagle_options() may follow.
Result<std::unique_ptr<Drafter>> make_eagle2(const std::string& path, const Target& target,
                                             kernels::Backend& backend) {
    DS_ASSIGN(EagleCheckpoint checkpoint, open_eagle_checkpoint(EagleGeneration::eagle2, path, target));
    auto model = std::make_unique<Eagle2Model>(std::move(checkpoint), target);
    DS_TRY(model->load(backend, target.lm_head().precision()));
    return make_eagle_drafter(std::move(model), "eagle2");
}

}  // namespace

DrafterInfo describe_eagle2() {
    return {.id = "eagle2",
            .name = "EAGLE-2",
            .paper = "EAGLE-2, arXiv 2406.16858",
            .help =
                "one decoder layer over the target's last hidden states; a folder with config.json and "
                "model.safetensors or pytorch_model.bin (SafeAILab, speculators)",
            .has_synthetic = true,
            .eagle = EagleGeneration::eagle2,
            .options = eagle_options(EagleGeneration::eagle2),
            .make = make_eagle2};
}

}  // namespace draftscope
