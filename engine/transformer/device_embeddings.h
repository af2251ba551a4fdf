#pragma once

#include <span>

#include "base/function_ref.h"
#include "base/spans.h"
#include "base/units.h"
#include "kernels/device.h"

namespace draftscope {

/// A table of token embeddings in a device's memory, f32, made when it is first asked for: V x d x 4 bytes.
class DeviceEmbeddings {
  public:
    /// [vocab, d] there; null when there is no room, which is not looked for again in the same session (until
    /// Device::forgive()). `embed` gives rows of tokens. The caller holds Device::busy().
    const float* get(kernels::Device& device, int vocab, int d,
                     FunctionRef<void(std::span<const TokenId>, Rows<float>)> embed);

  private:
    kernels::DeviceBuffer table_;
    int refused_ = -1;  ///< Device::forgiven() when there was no room
};

}  // namespace draftscope
