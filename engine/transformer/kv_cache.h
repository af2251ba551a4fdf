#pragma once

#include <span>

#include "kernels/backend.h"
#include "kernels/matrix.h"

namespace draftscope {

/// Keys and values are stored in 16 bits, except with f32 weights, whose results serve as a reference.
constexpr kernels::KvType kv_type_for(kernels::Precision precision) {
    return precision == kernels::Precision::f32 ? kernels::KvType::f32 : kernels::KvType::f16;
}

/// Returns the bytes of keys and values for each position of a text.
constexpr std::size_t kv_bytes(kernels::KvType type, int layers, int kv_width) {
    return 2 * kernels::key_bytes(type, kv_width, kernels::key_lanes) * static_cast<std::size_t>(layers) /
           kernels::key_lanes;
}

/// Keys and values of one sequence, in memory of a device. The first `length` slots are committed and hold
/// their logical positions. A forward pass writes its rows after them; path_move() and commit() keep some of
/// those.
class KvCache {
  public:
    /// Allocates all slots. Pages of the host are touched only when rows are written. If memory runs out, the
    /// planes have no data, and the pass that uses them reports the error.
    KvCache(int layers, int slots, int kv_width, kernels::KvType type, kernels::Backend& backend);

    int length() const { return length_; }
    int slots() const { return slots_; }
    int free_slots() const { return slots_ - length_; }
    int layers() const { return layers_; }
    int kv_width() const { return kv_width_; }
    kernels::KvType type() const { return type_; }
    /// The keys and values as operands of ops; null data if memory ran out.
    kernels::KvPlanes planes() const;

    /// Commits the `count` rows written after the committed slots (prefill, chains).
    void commit(int count);
    /// Returns the op that moves the rows of `path` next to each other; it commits nothing. `path` has the
    /// ascending indices of rows just written, root first. It and `count` (at most `max_count`) are in device
    /// memory. The caller calls commit() once it knows the count.
    kernels::CompactOp path_move(const std::int32_t* path, const std::int32_t* count, int max_count) const;
    void clear() { length_ = 0; }
    void truncate(int length) { length_ = length; }
    /// Grows the cache to at least `count` free slots and keeps the committed rows.
    void ensure_free(int count);

  private:
    std::int64_t plane_bytes(int slots) const {
        return static_cast<std::int64_t>(kernels::key_bytes(type_, kv_width_, slots));
    }
    void reserve();

    int layers_;
    int slots_;
    int kv_width_;
    int length_ = 0;
    kernels::KvType type_;
    kernels::Backend* backend_;
    kernels::DeviceBuffer memory_;
};

}  // namespace draftscope
