#include <algorithm>

#include "engine/draft/decoding_heads.h"
#include "engine/heads/linear_lm_head.h"

namespace draftscope {
namespace {

class LevelLmHeads final : public LinearLmHead {
  public:
    LevelLmHeads(std::span<const LevelLmHead> heads, int tokens) : heads_(heads), tokens_(tokens) {}

    Status prepare(kernels::Backend&, const HeadWeights&) override { return {}; }

    HeadProduct product(int level) const override {
        const LevelLmHead& head = heads_[std::min(static_cast<std::size_t>(level), heads_.size() - 1)];
        HeadProduct own{nullptr, head.matrix, tokens_, head.ids};
        if (!head.ids.empty())
            own.support = static_cast<int>(std::ranges::lower_bound(head.ids, tokens_) - head.ids.begin());
        if (head.bias != nullptr) own.bias = {head.bias, static_cast<std::size_t>(head.matrix->n())};
        return own;
    }

  private:
    std::span<const LevelLmHead> heads_;
    int tokens_;  ///< real ids; the remaining rows are padding
};

}  // namespace

std::unique_ptr<LmHead> make_level_lm_heads(std::span<const LevelLmHead> heads, const Target& target) {
    const Tokenizer* tokenizer = target.tokenizer();
    const int tokens = tokenizer == nullptr ? target.config().vocab : tokenizer->size();
    const bool trimmed = !heads.front().ids.empty();
    return std::make_unique<LevelLmHeads>(heads,
                                          trimmed ? tokens : std::min(tokens, heads.front().matrix->n()));
}

}  // namespace draftscope
