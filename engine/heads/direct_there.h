#pragma once

#include <vector>

#include "engine/heads/head_there.h"

namespace draftscope {

/// Levels of a head that is one product (Head::direct).
class DirectThere final : public HeadThere {
  public:
    void use(const LmHead& head) {
        if (head_ != &head) biases_.clear();
        head_ = &head;
    }
    bool fits(ProposeContext&, int levels, int k, std::span<HeadState* const>) override;
    DrawnColumns drawn_columns(int levels) const override;
    bool reserve(kernels::Device& device, int levels, int rows, int k) override;
    void ask(LevelThere& call) override;

  private:
    bool keep_ids(kernels::Device& device, std::span<const TokenId> ids);
    bool keep_bias(kernels::Device& device, int level, std::span<const float> bias);

    const LmHead* head_ = nullptr;
    std::vector<TokenId> ids_;  ///< as they lie there
    kernels::DeviceBuffer ids_there_, narrow_, narrow_half_, scratch_;
    std::vector<kernels::DeviceBuffer> biases_;  ///< of the levels; empty = not there, or none
};

}  // namespace draftscope
