#include "engine/draft/decoding_heads.h"
#include "engine/draft/path_heads_on_device.h"
#include "engine/draft/registry.h"

namespace draftscope {
namespace {

/// Medusa (arXiv 2401.10774): head i predicts the token at distance i + 2 from the last verified token, using
/// only that token's hidden.
class MedusaHeads final : public DecodingHeads {
  public:
    MedusaHeads(DecodingHeadWeights weights, int hidden) : weights_(std::move(weights)), hidden_(hidden) {
        lm_heads_ = level_lm_heads(weights_);
    }
    Status prepare(kernels::Exec& exec) { return on_device_.prepare(exec.device(), weights_, hidden_); }

    int heads() const override { return static_cast<int>(weights_.heads.size()); }
    bool uses_path() const override { return false; }
    int hidden() const override { return hidden_; }
    void rows(kernels::Exec& exec, int level, Rows<const float> hidden, Rows<const TokenId>,
              Rows<float> out) override {
        run_blocks(exec, weights_.heads[level], hidden, scratch_, out);
    }
    std::size_t weight_bytes(int level) const override { return weights_.bytes(level); }
    std::span<const LevelLmHead> lm_heads() const override { return lm_heads_; }
    PathHeadsOnDevice* on_device() override { return on_device_.ready() ? &on_device_ : nullptr; }

  private:
    DecodingHeadWeights weights_;
    PathHeadsOnDevice on_device_;
    std::vector<LevelLmHead> lm_heads_;
    int hidden_;
    std::vector<float> scratch_;
};

/// `path`: a folder or file in a published layout, or "synthetic:NAME".
Result<std::unique_ptr<Drafter>> make(const std::string& path, const Target& target, kernels::Exec& exec) {
    DS_ASSIGN(auto weights, load_decoding_heads(DecodingHeadKind::medusa, path, target, exec));
    auto heads = std::make_unique<MedusaHeads>(std::move(weights), target.config().hidden);
    DS_TRY(heads->prepare(exec));
    return make_decoding_head_drafter(std::move(heads), target, "medusa");
}

}  // namespace

DrafterInfo describe_medusa() {
    return {.id = "medusa",
            .name = "Medusa",
            .paper = "Medusa, arXiv 2401.10774",
            .help =
                "residual heads, one per depth, over the target's last hidden state; a folder with "
                "model.safetensors or medusa_lm_head.pt",
            .has_synthetic = true,
            .make = make};
}

}  // namespace draftscope
