#include "engine/draft/drafters.h"
#include "engine/draft/path_heads.h"

namespace draftscope {
namespace {

/// Medusa (arXiv 2401.10774): head i predicts the token i + 2 after the last verified one from that one's
/// hidden alone.
class MedusaHeads final : public PathHeads {
  public:
    MedusaHeads(std::vector<PathHeadLayer> layers, const Target& target)
        : layers_(std::move(layers)), target_(target) {}

    int heads() const override { return static_cast<int>(layers_.size()); }
    bool sees_path() const override { return false; }
    int hidden() const override { return target_.config().hidden; }
    void embed(std::span<const TokenId> tokens, Rows<float> out) const override {
        target_.embed(tokens, out);
    }
    void rows(kernels::Exec& exec, int level, Rows<const float> hidden, std::span<const std::vector<TokenId>>,
              Rows<float> out) override {
        residual_head(exec, layers_[static_cast<std::size_t>(level)], hidden, hidden, out);
    }
    std::size_t weight_bytes(int level) const override {
        return layers_[static_cast<std::size_t>(level)].weight.bytes();
    }

  private:
    std::vector<PathHeadLayer> layers_;
    const Target& target_;
};

}  // namespace

Result<std::unique_ptr<Drafter>> make_medusa(const std::string& path, const Target& target,
                                             kernels::Exec& exec) {
    DS_ASSIGN(auto layers, load_path_heads(path, target, exec, [](int, int hidden) { return hidden; }));
    return make_path_head_drafter(std::make_unique<MedusaHeads>(std::move(layers), target), "medusa");
}

}  // namespace draftscope
