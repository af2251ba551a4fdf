#pragma once

#include <cstddef>
#include <vector>

namespace draftscope {

/// A vector that keeps its elements alive across clear(), so that their buffers are reused.
/// Method add() returns an element with stale contents and may reallocate.
template <typename T>
class ReusableVector {
  public:
    void clear() { used_ = 0; }
    T& add() {
        if (used_ == all_.size()) all_.emplace_back();
        return all_[used_++];
    }
    bool empty() const { return used_ == 0; }
    std::size_t size() const { return used_; }
    T* data() { return all_.data(); }
    const T* data() const { return all_.data(); }
    T* begin() { return all_.data(); }
    T* end() { return all_.data() + used_; }
    const T* begin() const { return all_.data(); }
    const T* end() const { return all_.data() + used_; }
    T& operator[](std::size_t i) { return all_[i]; }
    const T& operator[](std::size_t i) const { return all_[i]; }

  private:
    std::vector<T> all_;
    std::size_t used_ = 0;
};

}  // namespace draftscope
