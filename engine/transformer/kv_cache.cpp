#include "engine/transformer/kv_cache.h"

#include <algorithm>
#include <cassert>
#include <new>
#include <utility>

#include "base/numel.h"

namespace draftscope {
namespace {

constexpr std::align_val_t cache_line{64};

}  // namespace

void KvCache::Free::operator()(std::byte* rows) const {
    ::operator delete(rows, cache_line);
}

KvCache::Memory KvCache::reserve(std::size_t bytes) const {
    return Memory(static_cast<std::byte*>(::operator new(bytes, cache_line)));
}

KvCache::KvCache(int layers, int slots, int kv_width, kernels::KvType type, kernels::Device* device)
    : layers_(layers), slots_(slots), kv_width_(kv_width), type_(type), device_(device) {
    assert(layers > 0 && slots >= 0 && kv_width > 0);
    if (device_ != nullptr) {
        const std::lock_guard lock(device_->submit_mutex());
        reserve_on_device();
        return;
    }
    for (int layer = 0; layer < layers; ++layer) {
        keys_.push_back(reserve(kernels::key_bytes(type, kv_width, slots)));
        values_.push_back(reserve(numel(slots, row_bytes())));
    }
}

std::size_t KvCache::row_bytes() const {
    return kv_width_ * kernels::bytes_per_value(type_);
}

void KvCache::reserve_on_device() {
    const auto values = numel(2 * layers_, plane());
    // Without memory, planes() are null and the pass that uses them reports the error.
    (void)on_device_.reserve(*device_, values * sizeof(kernels::half_t));
}

kernels::KvPlanes KvCache::planes() const {
    return {on_device_.as<kernels::half_t>(), plane()};
}

void KvCache::commit(int count) {
    assert(count >= 0 && count <= free_slots());
    length_ += count;
}

void KvCache::commit_path(std::span<const int> path) {
    assert(static_cast<int>(path.size()) <= free_slots());
    if (device_ != nullptr) {
        const std::lock_guard lock(device_->submit_mutex());
        device_->compact(
            {planes(), 2 * layers_, kv_width_, length_, path.data(), static_cast<int>(path.size())});
        length_ += static_cast<int>(path.size());
        return;
    }
    // In ascending order no source is overwritten before it is read.
    for (std::size_t i = 0; i < path.size(); ++i) {
        const auto to = length_ + static_cast<int>(i), from = length_ + path[i];
        assert(from >= to && (i == 0 || path[i] > path[i - 1]));
        if (from == to) continue;
        for (int layer = 0; layer < layers_; ++layer) {
            kernels::move_key(type_, kv_width_, keys(layer), from, to);
            std::copy_n(values(layer) + row_offset(from, row_bytes()), row_bytes(),
                        values(layer) + row_offset(to, row_bytes()));
        }
    }
    length_ += static_cast<int>(path.size());
}

kernels::CompactOp KvCache::path_move(const std::int32_t* path, const std::int32_t* count,
                                      int max_count) const {
    kernels::CompactOp op;
    op.cache = planes();
    op.planes = 2 * layers_;
    op.width = kv_width_;
    op.first = length_;
    op.count = max_count;
    op.d_path = path;
    op.d_count = count;
    return op;
}

void KvCache::ensure_free(int count) {
    if (free_slots() >= count) return;
    const int slots = length_ + count;
    // Growing synchronizes the device. Adding `count` to all slots makes one growth enough for a text within
    // its original slots.
    if (device_ != nullptr) return grow_on_device(slots_ + count);
    const auto grow = [&](Memory& rows, std::size_t kept, std::size_t bytes) {
        Memory larger = reserve(bytes);
        std::copy_n(rows.get(), kept, larger.get());
        rows = std::move(larger);
    };
    for (std::size_t layer = 0; layer < keys_.size(); ++layer) {
        grow(keys_[layer], kernels::key_bytes(type_, kv_width_, length_),
             kernels::key_bytes(type_, kv_width_, slots));
        grow(values_[layer], numel(length_, row_bytes()), numel(slots, row_bytes()));
    }
    slots_ = slots;
}

void KvCache::grow_on_device(int slots) {
    const std::lock_guard lock(device_->submit_mutex());
    const kernels::KvPlanes old = planes();
    const kernels::DeviceBuffer kept = std::exchange(on_device_, kernels::DeviceBuffer());
    slots_ = slots;
    reserve_on_device();
    const kernels::KvPlanes fresh = planes();
    if (fresh.data == nullptr || old.data == nullptr) return;
    const std::size_t bytes =
        static_cast<std::size_t>(length_) * static_cast<std::size_t>(kv_width_) * sizeof(kernels::half_t);
    for (int p = 0; p < 2 * layers_; ++p)
        device_->copy(fresh.data + p * fresh.plane, old.data + p * old.plane, bytes);
    (void)device_->synchronize();  // before the old memory is released
}

}  // namespace draftscope
