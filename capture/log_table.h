#pragma once

#include <array>
#include <cassert>
#include <cstddef>
#include <memory>
#include <vector>

namespace draftscope {

/// Append-only table in chunks of fixed size. A View shares the chunks, so making one copies one pointer per
/// chunk. Rows below a view's size never change. One thread appends; views are passed to other threads under
/// a mutex.
template <typename Row, std::size_t ChunkRows = 512>
class LogTable {
    using Chunk = std::array<Row, ChunkRows>;

  public:
    class View {
      public:
        std::size_t size() const { return size_; }
        bool empty() const { return size_ == 0; }
        const Row& operator[](std::size_t i) const {
            assert(i < size_);
            return (*chunks_[i / ChunkRows])[i % ChunkRows];
        }
        const Row& back() const { return (*this)[size_ - 1]; }

        struct Iterator {
            const View* view;
            std::size_t i;
            const Row& operator*() const { return (*view)[i]; }
            Iterator& operator++() { return ++i, *this; }
            bool operator==(const Iterator&) const = default;
        };
        Iterator begin() const { return {this, 0}; }
        Iterator end() const { return {this, size_}; }

      private:
        friend class LogTable;
        std::vector<std::shared_ptr<Chunk>> chunks_;
        std::size_t size_ = 0;
    };

    void push_back(Row row) {
        if (view_.size_ == view_.chunks_.size() * ChunkRows)
            view_.chunks_.push_back(std::make_shared<Chunk>());
        (*view_.chunks_.back())[view_.size_ % ChunkRows] = std::move(row);
        ++view_.size_;
    }
    std::size_t size() const { return view_.size_; }
    const Row& operator[](std::size_t i) const { return view_[i]; }
    View view() const { return view_; }

  private:
    View view_;
};

}  // namespace draftscope
