#pragma once

#include <span>

#include "base/spans.h"
#include "kernels/exec.h"

namespace draftscope::kernels {

struct AttentionShape {
    int heads = 0;
    int kv_heads = 0;
    int head_dim = 0;
    float scale = 1.0f;  ///< on q . k
};

/// One query: logical positions 0 .. prefix + tail.size() - 1. The key of logical position p lies in slot p
/// for p < prefix and in slot tail[p - prefix] beyond (a tree node's ancestors in depth order, itself last).
struct AttentionQuery {
    const float* q = nullptr;       ///< [heads * head_dim], rotated
    float* out = nullptr;           ///< [heads * head_dim]
    const float* keys = nullptr;    ///< [slots, kv_heads * head_dim], rotated
    const float* values = nullptr;  ///< [slots, kv_heads * head_dim]
    int prefix = 0;
    std::span<const int> tail;
};

/// Softmax attention, f32. Sums run over logical positions in fixed blocks, so a query's result is the same
/// whether its keys sit in the prefix or in tree slots, and whatever else is in the call.
void attention(Exec& exec, const AttentionShape& shape, std::span<const AttentionQuery> queries);

}  // namespace draftscope::kernels
