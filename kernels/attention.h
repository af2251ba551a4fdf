#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/spans.h"
#include "kernels/exec.h"

namespace draftscope::kernels {

/// How keys and values are kept. 16 bits halve what a long context costs; sums are in f32 either way.
enum class KvType : std::uint8_t { f32, f16 };
constexpr std::size_t bytes_of(KvType type) {
    return type == KvType::f32 ? sizeof(float) : sizeof(std::uint16_t);
}

struct AttentionShape {
    int heads = 0;
    int kv_heads = 0;
    int head_dim = 0;
    float scale = 1.0f;  ///< on q . k
    KvType kv = KvType::f32;
};

/// One query: logical positions 0 .. prefix + tail.size() - 1. The key of logical position p lies in slot p
/// for p < prefix and in slot tail[p - prefix] beyond (a tree node's ancestors in depth order, itself last).
struct AttentionQuery {
    const float* q = nullptr;      ///< [heads * head_dim], rotated
    float* out = nullptr;          ///< [heads * head_dim]
    const void* keys = nullptr;    ///< [slots, kv_heads * head_dim] of AttentionShape::kv, rotated
    const void* values = nullptr;  ///< [slots, kv_heads * head_dim]
    int prefix = 0;
    std::span<const int> tail;
};

/// Softmax attention, f32. Sums run over logical positions in fixed blocks, so a query's result is the same
/// whether its keys sit in the prefix or in tree slots, and whatever else is in the call.
void attention(Exec& exec, const AttentionShape& shape, std::span<const AttentionQuery> queries);

/// Keys or values as attention() reads them: `n` values to `to`, the nearest of the type, no farther than its
/// largest finite one.
void store_kv(const Exec& exec, KvType type, const float* from, int n, void* to);

}  // namespace draftscope::kernels
