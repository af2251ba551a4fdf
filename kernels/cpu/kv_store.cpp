#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/numel.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/matmul/layout.h"
#include "kernels/cpu/vector/dispatch.h"

namespace draftscope::kernels {
namespace {

std::size_t key_at(int width, int slot, int d) {
    const std::size_t block = slot / key_lanes;
    return (block * width + d) * key_lanes + slot % key_lanes;
}

template <typename T>
void move_typed_key(int width, T* keys, int from, int to) {
    const T* source = keys + key_at(width, from, 0);
    T* target = keys + key_at(width, to, 0);
    for (int d = 0; d < width; ++d) target[d * key_lanes] = source[d * key_lanes];
}

}  // namespace

void store_key(const ThreadPool& pool, KvType type, const float* key, int width, int slot, void* keys) {
    if (type == KvType::f32) {
        float* to = static_cast<float*>(keys) + key_at(width, slot, 0);
        for (int d = 0; d < width; ++d) to[d * key_lanes] = key[d];
        return;
    }
    auto* to = static_cast<std::uint16_t*>(keys) + key_at(width, slot, 0);
    std::uint16_t some[128];
    for (int first = 0; first < width; first += 128) {
        const int count = std::min(128, width - first);
        row_kernels(pool).to_f16(key + first, count, some);
        for (int d = 0; d < count; ++d) to[(first + d) * key_lanes] = some[d];
    }
}

void prefetch_key(KvType type, int width, int slot, void* keys) {
    const std::size_t block = key_at(width, key_lanes, 0) * bytes_per_value(type);
    auto* lines = static_cast<std::byte*>(keys) + numel(slot / key_lanes, block);
    for (std::size_t at = 0; at < block; at += 64) __builtin_prefetch(lines + at, 1, 3);
}

void store_value(const ThreadPool& pool, KvType type, const float* value, int width, int slot, void* values) {
    const std::size_t at = numel(slot, width);
    if (type == KvType::f16)
        return row_kernels(pool).to_f16(value, width, static_cast<std::uint16_t*>(values) + at);
    std::copy_n(value, width, static_cast<float*>(values) + at);
}

void move_key(KvType type, int width, void* keys, int from_slot, int to_slot) {
    if (type == KvType::f16)
        return move_typed_key(width, static_cast<std::uint16_t*>(keys), from_slot, to_slot);
    move_typed_key(width, static_cast<float*>(keys), from_slot, to_slot);
}

}  // namespace draftscope::kernels
