#include "engine/transformer/kv_cache.h"

#include <cassert>
#include <mutex>
#include <utility>

namespace draftscope {

KvCache::KvCache(int layers, int slots, int kv_width, kernels::KvType type, kernels::Backend& backend)
    : layers_(layers), slots_(slots), kv_width_(kv_width), type_(type), backend_(&backend) {
    assert(layers > 0 && slots >= 0 && kv_width > 0);
    const std::lock_guard lock(backend_->submit_mutex());
    reserve();
}

void KvCache::reserve() {
    (void)memory_.reserve(*backend_, static_cast<std::size_t>(2 * layers_ * plane_bytes(slots_)));
}

kernels::KvPlanes KvCache::planes() const {
    constexpr std::int64_t unit = sizeof(kernels::half_t);
    return {memory_.as<kernels::half_t>(), plane_bytes(slots_) / unit, type_};
}

void KvCache::commit(int count) {
    assert(count >= 0 && count <= free_slots());
    length_ += count;
}

kernels::CompactOp KvCache::path_move(const std::int32_t* path, const std::int32_t* count,
                                      int max_count) const {
    kernels::CompactOp op;
    op.cache = planes();
    op.planes = 2 * layers_;
    op.width = kv_width_;
    op.first = length_;
    op.max_count = max_count;
    op.path = path;
    op.count = count;
    return op;
}

void KvCache::ensure_free(int count) {
    if (free_slots() >= count) return;
    const std::lock_guard lock(backend_->submit_mutex());
    const kernels::KvPlanes old = planes();
    const kernels::DeviceBuffer old_memory = std::exchange(memory_, kernels::DeviceBuffer());
    // Growing waits for the device. Adding `count` to all slots makes one growth enough for a text within its
    // original slots.
    slots_ += count;
    reserve();
    const kernels::KvPlanes new_planes = planes();
    if (new_planes.data == nullptr || old.data == nullptr) return;
    const auto bytes = static_cast<std::size_t>(plane_bytes(length_));
    for (int p = 0; p < 2 * layers_; ++p)
        backend_->copy(new_planes.data + p * new_planes.plane, old.data + p * old.plane, bytes);
    (void)backend_->synchronize();  // before the old memory is released
}

}  // namespace draftscope
