#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "base/spans.h"
#include "kernels/attention.h"
#include "kernels/device.h"
#include "kernels/matrix.h"

namespace draftscope {

/// Keys and values are stored in 16 bits, except with f32 weights, whose results serve as a reference.
constexpr kernels::KvType kv_type_for(kernels::Precision precision) {
    return precision == kernels::Precision::f32 ? kernels::KvType::f32 : kernels::KvType::f16;
}

/// Keys and values of one sequence, per layer in the layout of kernels::attention(). On a device they are
/// bf16 and [slots, kv_heads * head_dim]. The first `length` slots are committed and hold their logical
/// positions. A forward pass writes its rows after them, and commit_path() keeps some of those.
class KvCache {
  public:
    /// Reserves address space for all slots; pages are touched only when rows are written.
    KvCache(int layers, int slots, int kv_width, kernels::KvType type, kernels::Device* device = nullptr);

    int length() const { return length_; }
    int slots() const { return slots_; }
    int free_slots() const { return slots_ - length_; }
    int layers() const { return layers_; }
    /// Device caches only; null data if device memory ran out.
    kernels::KvPlanes planes() const;
    std::byte* keys(int layer) { return keys_[layer].get(); }
    std::byte* values(int layer) { return values_[layer].get(); }
    int kv_width() const { return kv_width_; }
    kernels::KvType type() const { return type_; }  ///< element type of keys() and values()
    std::size_t row_bytes() const;                  ///< bytes of one slot's keys (or values) in one layer

    /// Commits the `count` rows written after the committed slots (prefill, chains).
    void commit(int count);
    /// Keeps the rows of `path` out of those just written and moves them next to each other. `path` holds
    /// ascending node indices, root first.
    void commit_path(std::span<const int> path);
    /// Returns the device op for commit_path(); it commits nothing. `path` and `count` (at most `most`) are
    /// in device memory. The caller calls commit() once it knows the count.
    kernels::CompactOp path_move(const std::int32_t* path, const std::int32_t* count, int max_count) const;
    void clear() { length_ = 0; }
    void truncate(int length) { length_ = length; }
    /// Grows the cache to at least `count` free slots and keeps the committed rows.
    void ensure_free(int count);

  private:
    /// Aligned to a cache line, so that the row of a head spans whole lines.
    struct Free {
        void operator()(std::byte* rows) const;
    };
    using Memory = std::unique_ptr<std::byte[], Free>;
    Memory reserve(std::size_t bytes) const;
    void reserve_on_device();
    void grow_on_device(int slots);
    std::int64_t plane() const { return std::int64_t{slots_} * kv_width_; }

    int layers_;
    int slots_;
    int kv_width_;
    int length_ = 0;
    kernels::KvType type_;
    std::vector<Memory> keys_, values_;
    kernels::Device* device_ = nullptr;
    kernels::DeviceBuffer on_device_;
};

}  // namespace draftscope
