#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/heads/head_call.h"
#include "kernels/device_array.h"
#include "kernels/row_major_matrix.h"

namespace draftscope {

/// Tokens of a sequence that the host lists, with a copy in device memory.
class ListedTokens {
  public:
    /// Uploads up to `max_count` tokens, ascending, and the LM head's row of each; without `rows`, these are
    /// not used. Returns false if out of memory.
    bool upload(kernels::Backend& backend, std::span<const TokenId> ids, std::span<const TokenId> rows,
                int max_count);
    /// Returns whether these tokens were uploaded last.
    bool are(std::span<const TokenId> ids) const {
        return !ids_.empty() && std::equal(ids.begin(), ids.end(), ids_.begin() + 1, ids_.end());
    }
    int count() const { return ids_.empty() ? 0 : ids_.front(); }
    // In device memory:
    const std::int32_t* size() const { return d_ids_.data(); }  ///< the number of tokens
    const TokenId* ids() const { return d_ids_.data() + 1; }
    const TokenId* rows() const { return d_rows_.data(); }

  private:
    std::vector<std::int32_t> ids_;  ///< the number, then the tokens, as uploaded
    kernels::DeviceArray<std::int32_t> d_ids_, d_rows_;
};

/// Calls that read scattered rows of an LM head in place.
class ListedRows {
  public:
    /// Reserves memory for calls over up to `tokens` tokens. Returns false if out of memory.
    bool reserve(kernels::Backend& backend, int rows, int tokens, int k);
    /// Proposes from the listed rows of `store` to the sequence's rows of `call`. If drafts are sampled,
    /// writes the logits that they are sampled from.
    void enqueue(HeadCall& call, const HeadSequence& sequence, const kernels::RowMajorMatrix& store,
                 const ListedTokens& tokens);

  private:
    kernels::DeviceArray<std::byte> scratch_;
    kernels::DeviceArray<float> logits_;
};

/// Writes the support logits of a sequence's rows: `product` over its tokens, without output. Also writes the
/// tokens and their number.
void enqueue_support(HeadCall& call, const HeadSequence& sequence, const ListedTokens& tokens,
                     kernels::MatmulOp product);

}  // namespace draftscope
