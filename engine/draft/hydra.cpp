#include "engine/draft/decoding_heads.h"
#include "engine/draft/path_heads.h"
#include "engine/draft/registry.h"

namespace draftscope {
namespace {

/// Hydra (arXiv 2402.05109): head i also reads the embeddings of the i + 1 tokens drafted before its token,
/// root first.
class HydraHeads final : public DecodingHeads {
  public:
    HydraHeads(DecodingHeadWeights weights, const Target& target)
        : weights_(std::move(weights)), target_(target) {
        lm_heads_ = level_lm_heads(weights_);
    }
    Status prepare(kernels::Backend& backend) { return pass_.prepare(backend, weights_, hidden()); }

    int heads() const override { return static_cast<int>(weights_.heads.size()); }
    bool uses_path() const override { return true; }
    int hidden() const override { return target_.config().hidden; }
    std::size_t weight_bytes(int level) const override { return weights_.bytes(level); }
    std::span<const LevelLmHead> lm_heads() const override { return lm_heads_; }
    const Notes& notes() const override { return weights_.notes; }
    PathHeads& pass() override { return pass_; }

  private:
    DecodingHeadWeights weights_;
    PathHeads pass_;
    std::vector<LevelLmHead> lm_heads_;
    const Target& target_;
};

/// `path`: a folder or file in a published layout, or "synthetic:NAME".
Result<std::unique_ptr<Drafter>> make_hydra(const std::string& path, const Target& target,
                                            kernels::Backend& backend) {
    DS_ASSIGN(auto weights, load_decoding_heads(DecodingHeadKind::hydra, path, target, backend));
    auto heads = std::make_unique<HydraHeads>(std::move(weights), target);
    DS_TRY(heads->prepare(backend));
    return make_decoding_head_drafter(std::move(heads), target, "hydra");
}

}  // namespace

DrafterInfo describe_hydra() {
    return {.id = "hydra",
            .name = "Hydra",
            .paper = "Hydra, arXiv 2402.05109",
            .help =
                "heads that also read the drafted tokens before theirs; a folder with model.safetensors or "
                "hydra_lm_head.pt",
            .has_synthetic = true,
            .make = make_hydra};
}

}  // namespace draftscope
