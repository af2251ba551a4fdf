#include "engine/draft/decoding_heads.h"
#include "engine/draft/path_heads.h"
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
    Status prepare(kernels::Backend& backend) { return pass_.prepare(backend, weights_, hidden_); }

    int heads() const override { return static_cast<int>(weights_.heads.size()); }
    bool uses_path() const override { return false; }
    int hidden() const override { return hidden_; }
    std::size_t weight_bytes(int level) const override { return weights_.bytes(level); }
    std::span<const LevelLmHead> lm_heads() const override { return lm_heads_; }
    const Notes& notes() const override { return weights_.notes; }
    PathHeads& pass() override { return pass_; }

  private:
    DecodingHeadWeights weights_;
    PathHeads pass_;
    std::vector<LevelLmHead> lm_heads_;
    int hidden_;
};

/// `path`: a folder or file in a published layout, or "synthetic:NAME".
Result<std::unique_ptr<Drafter>> make_medusa(const std::string& path, const Target& target,
                                             kernels::Backend& backend) {
    DS_ASSIGN(auto weights, load_decoding_heads(DecodingHeadKind::medusa, path, target, backend));
    auto heads = std::make_unique<MedusaHeads>(std::move(weights), target.config().hidden);
    DS_TRY(heads->prepare(backend));
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
            .make = make_medusa};
}

}  // namespace draftscope
