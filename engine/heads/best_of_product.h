#pragma once

#include "engine/heads/head_call.h"
#include "kernels/device_array.h"

namespace draftscope {

/// Selects the best outputs of a product. Records phase head, and topk if the device does both one after the
/// other. With a separate softmax it always does, and log(sum(exp)) has a phase of its own within topk.
class BestOfProduct {
  public:
    /// Reserves memory for products of up to `rows` rows and `outputs` outputs. Returns false if out of
    /// memory.
    bool reserve(kernels::Backend& backend, int rows, int outputs, int k);
    /// Measures the steps of a head one by one, as the papers do. The results are the same bits. Call it
    /// before reserve().
    void separate_softmax() { separate_ = true; }
    /// Enqueues `op`, whose scratch memory is set here. `bytes`: weights that the product reads.
    void enqueue(HeadCall& call, kernels::MatmulTopKOp op, std::uint64_t bytes);

  private:
    /// Returns whether product and selection are two ops, which need memory for the logits.
    bool splits(const kernels::Backend& backend, int outputs, int k) const {
        return separate_ || backend.splits_matmul_topk(outputs, k);
    }
    void enqueue_softmax(HeadCall& call, const kernels::TopKOp& select);

    bool separate_ = false;
    kernels::DeviceArray<float> logits_, largest_;
    kernels::DeviceArray<std::int32_t> largest_ids_;
    kernels::DeviceArray<std::byte> scratch_;
};

}  // namespace draftscope
