#pragma once

#include <cstdint>

#include "kernels/ops/kv_layout.h"
#include "kernels/ops/kv_type.h"
#include "kernels/ops/matrix.h"

/// KV caches, RoPE and attention.
namespace draftscope::kernels {

/// KV cache of a sequence: for each layer a plane of keys, then a plane of values. On a GPU both are [slots,
/// kv_width]. On the CPU they are in the layouts of store_key() and store_value().
struct KvPlanes {
    half_t* data = nullptr;
    std::int64_t plane = 0;     ///< distance of planes, in values of 16 bits
    KvType type = KvType::f16;  ///< f16 on a GPU, in its 16-bit format
    constexpr const half_t* keys(int layer) const { return data + 2 * layer * plane; }
    constexpr const half_t* values(int layer) const { return data + (2 * layer + 1) * plane; }
};

/// Bytes of the keys of `slots` slots, in whole groups of key_lanes.
constexpr std::size_t key_bytes(KvType type, int width, int slots) {
    const auto groups = static_cast<std::size_t>((slots + key_lanes - 1) / key_lanes);
    return groups * key_lanes * static_cast<std::size_t>(width) * bytes_per_value(type);
}

/// Cache slots, positions and visible keys of the rows of a pass; see AttentionQuery. Arrays are in device
/// memory.
struct AttentionBatch {
    const KvPlanes* caches = nullptr;        ///< [sequences]
    const std::int32_t* sequence = nullptr;  ///< [rows]
    const std::int32_t* slot = nullptr;      ///< [rows] the slot that takes the row's key
    const std::int32_t* position = nullptr;  ///< [rows]
    const std::int32_t* prefix = nullptr;    ///< [rows]
    const std::int32_t* ancestor_first = nullptr;
    const std::int32_t* ancestor_count = nullptr;
    const std::int32_t* ancestor_slots = nullptr;
    /// Runs of consecutive rows of one sequence that share reads of its keys: first row, rows; [tiles, 2].
    const std::int32_t* tiles = nullptr;
};
/// Head counts and size of an attention layer.
struct AttentionHeads {
    int heads = 0, kv_heads = 0, head_dim = 0;
};
/// Rows of an attention tile: about 16 (row, head) pairs share each key.
constexpr int attention_tile_rows(const AttentionHeads& shape) {
    const int group = shape.heads / shape.kv_heads;
    return group >= 16 ? 1 : 16 / group;
}
/// Logical positions covered by one partial sum of attention.
inline constexpr int attention_block = 64;

/// Applies RoPE to q and k, on half-split pairs, and stores k and v. Rows are [q | k | v]: q stays in place,
/// k and v are rounded and stored in the row's slot.
struct RopeStoreOp {
    float* qkv = nullptr;
    std::int64_t stride = 0;
    int rows = 0;
    AttentionHeads shape;
    const float* cos = nullptr;  ///< [positions, head_dim / 2]
    const float* sin = nullptr;
    AttentionBatch batch;
    int layer = 0;
};

/// Softmax attention of rows over their cached keys and values; see kernels/attention.h.
struct AttentionOp {
    const float* q = nullptr;  ///< [rows, q_stride], with RoPE applied
    std::int64_t q_stride = 0;
    int first_row = 0, rows = 0;  ///< rows first_row .. first_row + rows - 1, covered by the tiles
    int tiles = 0;
    AttentionHeads shape;
    float scale = 1;
    AttentionBatch batch;
    int layer = 0;
    int blocks = 0;  ///< at least ceil(positions / attention_block) of every row
    /// [rows, heads, blocks, head_dim + 2] partial sums, starting at first_row.
    float* partial = nullptr;
    Activations y;  ///< [rows, y_stride], padded with zeros
    int y_stride = 0;
};

/// Compacts a KV cache. In each of `planes` planes, slot first + i takes the contents of slot first +
/// path[i]. The path is ascending, and path[i] >= i.
struct CompactOp {
    KvPlanes cache;
    int planes = 0, width = 0, first = 0;
    int max_count = 0;                    ///< upper bound of `count`
    const std::int32_t* path = nullptr;   ///< [count]
    const std::int32_t* count = nullptr;  ///< [1]
};

}  // namespace draftscope::kernels
