#pragma once

#include "engine/heads/head_call.h"
#include "kernels/device_array.h"
#include "kernels/row_major_matrix.h"

namespace draftscope {

/// Tokens of a sequence that the host lists, in device memory.
struct ListedTokens {
    const TokenId* ids = nullptr;        ///< [count], ascending
    const std::int32_t* rows = nullptr;  ///< their number, then the LM head's row of each
    int count = 0;
};

/// Calls that read scattered rows of an LM head in place.
class ListedRows {
  public:
    /// Reserves memory for calls over up to `tokens` tokens. Returns false if out of memory.
    bool reserve(kernels::Device& device, int rows, int tokens, int k);
    /// Proposes from the listed rows of `store` to the sequence's rows of `call`. If drafts are sampled,
    /// writes the logits that they are sampled from.
    void enqueue(HeadCall& call, const HeadSequence& sequence, const kernels::RowMajorMatrix& store,
                 const ListedTokens& tokens);

  private:
    kernels::DeviceArray<std::byte> scratch_;
    kernels::DeviceArray<float> logits_;
};

/// Writes the support logits of a sequence's rows: `product` over its tokens, without output.
void enqueue_support(HeadCall& call, const HeadSequence& sequence, const ListedTokens& tokens,
                     kernels::MatmulOp product);

}  // namespace draftscope
