#pragma once

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

#include "kernels/backend.h"

/// Typed device memory, and arrays that share one upload.
namespace draftscope::kernels {

/// Device memory for values of type T. It grows to powers of two, so that calls of slowly growing sizes
/// seldom allocate.
template <typename T>
class DeviceArray : public DeviceBuffer {
  public:
    T* data() const { return as<T>(); }
    bool empty() const { return data() == nullptr; }
    /// Makes room for `count` values. Growing discards the contents. Returns false if the device has too
    /// little memory; the array is empty then.
    bool resize_at_least(Backend& backend, std::size_t count) {
        return reserve(backend, std::bit_ceil(std::max<std::size_t>(count * sizeof(T), 4)));
    }
    /// Makes room for `values` and enqueues their upload. Returns false if out of memory.
    bool upload(Backend& backend, std::span<const T> values) {
        if (!resize_at_least(backend, values.size())) return false;
        backend.upload(data(), values.data(), values.size_bytes());
        return true;
    }
    /// upload() for values that stay: allocates no more than they need.
    bool upload_exact(Backend& backend, std::span<const T> values) {
        if (!reserve(backend, std::max<std::size_t>(values.size_bytes(), 4))) return false;
        backend.upload(data(), values.data(), values.size_bytes());
        return true;
    }
    /// Enqueues a download of the first values; `to` is valid after synchronize().
    void download(Backend& backend, std::span<T> to) const {
        backend.download(to.data(), data(), to.size_bytes());
    }
};

/// Packs arrays of 4-byte values one after another and uploads them together.
class DeviceStruct {
  public:
    /// Starts over, with room for `count` values. Returns false if out of memory.
    bool begin(Backend& backend, std::size_t count) {
        values_.clear();
        count_ = count;
        // Counts vary with the shapes of trees, so room for twice as many seldom has to grow.
        if (values_.capacity() < count) values_.reserve(std::bit_ceil(2 * count));
        return memory_.resize_at_least(backend, values_.capacity());
    }
    /// Appends `values` and returns their address in device memory.
    const std::int32_t* add(std::span<const std::int32_t> values) {
        const auto first = values_.size();
        values_.insert(values_.end(), values.begin(), values.end());
        assert(values_.size() <= count_);
        return memory_.data() + first;
    }
    /// Appends value(item) of each item.
    template <typename Items, typename Value>
    const std::int32_t* add(const Items& items, Value value) {
        const auto first = values_.size();
        for (const auto& item : items) values_.push_back(value(item));
        assert(values_.size() <= count_);
        return memory_.data() + first;
    }
    /// Enqueues the upload of everything added since begin().
    void upload(Backend& backend) {
        backend.upload(memory_.data(), values_.data(), values_.size() * sizeof(std::int32_t));
    }
    /// The address of the first value; it changes only in begin().
    const std::int32_t* data() const { return memory_.data(); }

  private:
    std::vector<std::int32_t> values_;
    DeviceArray<std::int32_t> memory_;
    std::size_t count_ = 0;
};

}  // namespace draftscope::kernels
