#include <cstring>

#include "engine/draft/drafters.h"
#include "engine/draft/path_heads.h"

namespace draftscope {
namespace {

/// Hydra (arXiv 2402.05109): head i also sees the embeddings of the i + 1 tokens drafted before it, root
/// first.
class HydraHeads final : public PathHeads {
  public:
    HydraHeads(std::vector<PathHeadLayer> layers, const Target& target)
        : layers_(std::move(layers)), target_(target) {}

    int heads() const override { return static_cast<int>(layers_.size()); }
    bool sees_path() const override { return true; }
    int hidden() const override { return target_.config().hidden; }
    void embed(std::span<const TokenId> tokens, Rows<float> out) const override {
        target_.embed(tokens, out);
    }
    void rows(kernels::Exec& exec, int level, Rows<const float> hidden,
              std::span<const std::vector<TokenId>> paths, Rows<float> out) override {
        const int d = target_.config().hidden;
        const int width = (level + 2) * d;
        inputs_.resize(paths.size() * static_cast<std::size_t>(width));
        const Rows<float> inputs(inputs_.data(), hidden.rows, width);
        for (int r = 0; r < hidden.rows; ++r) {
            std::memcpy(inputs.row_data(r), hidden.row_data(r), hidden.row(r).size_bytes());
            target_.embed(paths[static_cast<std::size_t>(r)],
                          Rows<float>(inputs.row_data(r) + d, level + 1, d));
        }
        residual_head(exec, layers_[static_cast<std::size_t>(level)], inputs, hidden, out);
    }
    std::size_t weight_bytes(int level) const override {
        return layers_[static_cast<std::size_t>(level)].weight.bytes();
    }

  private:
    std::vector<PathHeadLayer> layers_;
    const Target& target_;
    std::vector<float> inputs_;
};

}  // namespace

Result<std::unique_ptr<Drafter>> make_hydra(const std::string& path, const Target& target,
                                            kernels::Exec& exec) {
    const auto inputs = [](int head, int hidden) { return (head + 2) * hidden; };
    DS_ASSIGN(auto layers, load_path_heads(path, target, exec, inputs));
    return make_path_head_drafter(std::make_unique<HydraHeads>(std::move(layers), target), "hydra");
}

}  // namespace draftscope
