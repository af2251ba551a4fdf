#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/spans.h"
#include "kernels/ops/kv_layout.h"
#include "kernels/ops/kv_type.h"
#include "kernels/thread_pool.h"

namespace draftscope::kernels {

/// Head counts, head size and storage type of an attention layer.
struct AttentionShape {
    int heads = 0;
    int kv_heads = 0;
    int head_dim = 0;
    float scale = 1.0f;  ///< multiplies q . k
    KvType kv = KvType::f32;
};

/// One query over logical positions 0 .. prefix + ancestor_slots.size() - 1. The key of position p is in slot
/// p if p < prefix, else in slot ancestor_slots[p - prefix]. A tree node's list has its ancestors in depth
/// order, then the node.
struct AttentionQuery {
    const float* q = nullptr;      ///< [heads * head_dim], with RoPE applied
    float* out = nullptr;          ///< [heads * head_dim]
    const void* keys = nullptr;    ///< of type AttentionShape::kv, with RoPE applied, in the layout of
                                   ///< store_key()
    const void* values = nullptr;  ///< in the layout of store_value()
    int prefix = 0;
    std::span<const int> ancestor_slots;
};

/// Softmax attention in f32. Sums run over logical positions in fixed blocks. A query's result therefore does
/// not depend on the slots of its keys, nor on the other queries of the call.
void attention(ThreadPool& pool, const AttentionShape& shape, std::span<const AttentionQuery> queries);

/// Stores a slot's key. Keys of key_lanes neighbouring slots are interleaved by dimension, [slots /
/// key_lanes, width, key_lanes], so that one load serves as many products with a query. Values are stored as
/// rows, [slots, width]. Both are rounded to the nearest finite value of the type.
void store_key(const ThreadPool& pool, KvType type, const float* key, int width, int slot, void* keys);
/// Prefetches the cache lines that store_key() writes to: as many as a block of key_lanes slots has.
void prefetch_key(KvType type, int width, int slot, void* keys);
/// Stores a slot's value as a row.
void store_value(const ThreadPool& pool, KvType type, const float* value, int width, int slot, void* values);
/// Copies a key between slots of one cache.
void move_key(KvType type, int width, void* keys, int from_slot, int to_slot);

}  // namespace draftscope::kernels
