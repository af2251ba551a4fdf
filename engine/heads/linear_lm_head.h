#pragma once

#include <span>
#include <vector>

#include "engine/heads/best_of_product.h"
#include "engine/heads/head.h"
#include "engine/heads/low_rank.h"

namespace draftscope {

/// A product that yields a head's logits: up (down h), or up h, plus bias.
struct HeadProduct {
    const kernels::Matrix* down = nullptr;  ///< null = logits are up h
    const kernels::Matrix* up = nullptr;
    int support = 0;               ///< number of valid outputs of `up`
    std::span<const TokenId> ids;  ///< token of each output, ascending; empty = output i is token i
    /// Per output of `up`, or empty; must stay valid and constant while the head exists.
    std::span<const float> bias = {};
};

/// A head whose logits are one product at each level, and which has no state. Its candidates, cost and
/// coverage follow from the product.
class LinearLmHead : public LmHead {
  public:
    /// See BestOfProduct::separate_softmax().
    void separate_softmax() { best_.separate_softmax(); }
    /// Returns the product of a draft level. Call it after prepare().
    virtual HeadProduct product(int level) const = 0;

    CallShape shape(int level, int rows) const final;
    bool reserve(kernels::Backend& backend, int levels, int rows, int k) final;
    void propose(HeadCall& call) final;
    HeadCost cost_at(const HeadState*, int rows, int level) const final;
    ActiveSet active_set(const HeadState*, int level, std::vector<TokenId>& memory) const final;

  private:
    /// Constants of a level in device memory.
    struct Level {
        std::vector<TokenId> ids;  ///< as uploaded; empty = outputs are tokens
        kernels::DeviceArray<TokenId> d_ids;
        kernels::DeviceArray<float> bias;
    };
    bool upload_level(kernels::Backend& backend, int level);
    kernels::Activations enqueue_down(HeadCall& call, const HeadProduct& product);
    void enqueue_support(HeadCall& call, const HeadProduct& product, kernels::Activations x);

    bool per_row_ = false;  ///< the levels have different tokens
    std::vector<Level> levels_;
    DownProjection down_;
    BestOfProduct best_;
};

}  // namespace draftscope
