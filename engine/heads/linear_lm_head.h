#pragma once

#include <span>
#include <vector>

#include "engine/heads/candidates.h"
#include "engine/heads/linear_device_head.h"

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
    LinearLmHead() : device_head_(*this) {}
    /// Returns the product of a draft level. Call it after prepare().
    virtual HeadProduct product(int level) const = 0;

    void propose(ProposeContext& context, Rows<const float> hidden, std::span<HeadState* const> states, int k,
                 Proposal& out) final;
    DeviceHead* device_head() final { return &device_head_; }
    HeadCost cost_at(const HeadState*, int rows, int level) const final;
    bool covers(const HeadState*, TokenId token, int level) const final;
    bool active_ids(const HeadState*, int level, std::vector<TokenId>& out) const final;

  private:
    LinearDeviceHead device_head_;
    LinearProposer dense_;
    std::vector<float> narrow_;  ///< [rows, outputs of `down`]
};

}  // namespace draftscope
