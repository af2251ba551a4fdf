#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/spans.h"
#include "kernels/exec.h"
#include "kernels/kv_layout.h"

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
    const void* keys = nullptr;    ///< of AttentionShape::kv, rotated, as store_key() lays them
    const void* values = nullptr;  ///< as store_value() lays them
    int prefix = 0;
    std::span<const int> tail;
};

/// Softmax attention, f32. Sums run over logical positions in fixed blocks, so a query's result is the same
/// whether its keys sit in the prefix or in tree slots, and whatever else is in the call.
void attention(Exec& exec, const AttentionShape& shape, std::span<const AttentionQuery> queries);

/// Keys of neighbouring slots lie side by side, dimension by dimension, so that one load serves as many
/// products with a query: [slots / key_lanes, width, key_lanes]. Values lie in rows: [slots, width]. Either
/// is the nearest of the type, no farther than its largest finite one.
void store_key(const Exec& exec, KvType type, const float* key, int width, int slot, void* keys);
/// Asks memory for the lines that store_key() will write to, which are as many as a whole block has.
void expect_key(KvType type, int width, int slot, void* keys);
void store_value(const Exec& exec, KvType type, const float* value, int width, int slot, void* values);
void move_key(KvType type, int width, void* keys, int from_slot, int to_slot);
/// What the keys of that many slots take.
std::size_t key_bytes(KvType type, int width, int slots);

}  // namespace draftscope::kernels
