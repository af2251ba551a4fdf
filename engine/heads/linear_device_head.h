#pragma once

#include <vector>

#include "engine/heads/device_head.h"
#include "kernels/device_array.h"

namespace draftscope {

class LinearLmHead;

/// Device implementation of a head that is a single product.
class LinearDeviceHead final : public DeviceHead {
  public:
    /// `head` outlives this object.
    explicit LinearDeviceHead(const LinearLmHead& head) : head_(head) {}
    SupportColumns support_columns(int levels) const override;
    int support_size(int level, const HeadState*) const override;
    bool reserve(kernels::Device& device, int levels, int rows, int k) override;
    void enqueue(DeviceLevel& call) override;

  private:
    /// Constants of a level in device memory.
    struct Level {
        std::vector<TokenId> ids;  ///< as uploaded; empty = outputs are tokens
        kernels::DeviceArray<TokenId> d_ids;
        kernels::DeviceArray<float> bias;
    };
    bool upload_level(kernels::Device& device, int level);
    /// Enqueues the copy of the level's tokens to each row, for rows that have columns of their own.
    void copy_tokens(DeviceLevel& call, int support) const;

    const LinearLmHead& head_;
    bool own_ = false;  ///< the levels have different tokens
    std::vector<Level> levels_;
    kernels::DeviceBuffer narrow_, narrow_half_, scratch_;
};

}  // namespace draftscope
