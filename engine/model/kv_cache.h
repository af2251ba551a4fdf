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

/// Keys and values are kept in 16 bits but with f32 weights, whose results are a reference.
constexpr kernels::KvType kv_type_of(kernels::Precision precision) {
    return precision == kernels::Precision::f32 ? kernels::KvType::f32 : kernels::KvType::f16;
}

/// Keys and values of one sequence, per layer as kernels::attention() reads them (on a device bf16 and
/// [slots, kv_heads * head_dim]). `length`
/// slots are committed and lie at their logical positions; a forward writes its rows behind them and
/// `commit_path` keeps some of those.
class KvCache {
  public:
    /// Memory is reserved for all slots but only touched when rows are written.
    KvCache(int layers, int slots, int kv_width, kernels::KvType type, kernels::Device* device = nullptr);

    int length() const { return length_; }
    int slots() const { return slots_; }
    int free_slots() const { return slots_ - length_; }
    int layers() const { return layers_; }
    /// Of a cache on a device; null data where its memory was out.
    kernels::KvPlanes planes() const;
    std::byte* keys(int layer) { return keys_[static_cast<std::size_t>(layer)].get(); }
    std::byte* values(int layer) { return values_[static_cast<std::size_t>(layer)].get(); }
    int kv_width() const { return kv_width_; }
    kernels::KvType type() const { return type_; }  ///< of keys() and values()
    std::size_t row_bytes() const;                  ///< of the keys, or the values, of one slot in one layer

    /// The rows just written at slots length .. length + count - 1 become committed as they lie (prefill,
    /// chains).
    void commit(int count);
    /// Of the rows just written, keeps `path` (ascending node indices, root first) and moves them together.
    void commit_path(std::span<const int> path);
    /// The same on a device, as an op that commits nothing: `path` and `count`, at most `most`, lie there.
    /// The caller says commit() once it knows the count.
    kernels::CompactOp path_move(const std::int32_t* path, const std::int32_t* count, int most) const;
    void clear() { length_ = 0; }
    void truncate(int length) { length_ = length; }
    /// Makes room for at least `count` rows behind the committed ones, which are kept.
    void ensure_free(int count);

  private:
    /// On a cache line's border, so that a row of a head is read in whole lines.
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
