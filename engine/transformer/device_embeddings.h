#pragma once

#include <span>

#include "base/function_ref.h"
#include "base/spans.h"
#include "base/units.h"
#include "kernels/backend.h"

namespace draftscope {

/// A table of all token embeddings in device memory, f32 [vocab, d], created on first use.
class DeviceEmbeddings {
  public:
    /// Returns the table, which this object owns; null if out of memory. Allocation is retried only after
    /// Backend::clear_out_of_memory(). `embed` writes the embeddings of tokens, [tokens, d]. The caller holds
    /// Backend::submit_mutex().
    const float* get(kernels::Backend& backend, int vocab, int d,
                     FunctionRef<void(std::span<const TokenId>, Rows<float>)> embed);

  private:
    kernels::DeviceBuffer table_;
    int refused_ = -1;  ///< Backend::oom_epoch() when memory ran out
};

}  // namespace draftscope
