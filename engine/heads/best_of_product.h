#pragma once

#include "engine/heads/head_call.h"
#include "kernels/device_array.h"

namespace draftscope {

/// Selects the best outputs of a product. Records phase head, and topk if the device does both one after the
/// other.
class BestOfProduct {
  public:
    /// Reserves memory for products of up to `rows` rows and `outputs` outputs. Returns false if out of
    /// memory.
    bool reserve(kernels::Backend& backend, int rows, int outputs, int k);
    /// Enqueues `op`, whose scratch memory is set here. `bytes`: weights that the product reads.
    void enqueue(HeadCall& call, kernels::MatmulTopKOp op, std::uint64_t bytes);

  private:
    kernels::DeviceArray<float> logits_;
    kernels::DeviceArray<std::byte> scratch_;
};

}  // namespace draftscope
