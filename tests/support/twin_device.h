#pragma once

#include <array>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "kernels/backend.h"

namespace draftscope::testing {

// Members of TwinDevice for each op. run() is the reference implementation, in plain loops (twin_*.cpp).
#define DS_OP(name, Op)                            \
    void enqueue(const kernels::Op& op) override { \
        run(op);                                   \
    }                                              \
    void run(const kernels::Op& op);
#define DS_OP_BATCH(name, Op)                                 \
    void enqueue(std::span<const kernels::Op> ops) override { \
        for (const kernels::Op& op : ops) run(op);            \
    }                                                         \
    void run(const kernels::Op& op);

/// A device that computes on the host, with a reference implementation of every op. Tests run the engine on
/// it without a GPU, and compare kernels with it. The host cannot read its addresses, and its ops reject host
/// addresses; either mistake ends the program.
class TwinDevice final : public kernels::Backend {
  public:
    explicit TwinDevice(std::size_t memory_bytes = std::size_t{8} << 30);
    ~TwinDevice() override;
    const kernels::DeviceInfo& info() const override { return info_; }
    void* allocate(std::size_t bytes) override;
    void release(void* data) override;
    void upload(void* to, const void* from, std::size_t bytes) override;
    void download(void* to, const void* from, std::size_t bytes) override;
    void copy(void* to, const void* from, std::size_t bytes) override;
    Status synchronize() override;
    DS_DEVICE_OPS(DS_OP, DS_OP_BATCH)
    /// Runs at join_side_stream(), the latest possible time. Reads before the join find the old rows.
    void async_gather(const kernels::GatherOp& op, const kernels::UpdateIndexSetOp& set,
                      std::span<const std::int32_t> toggled) override;
    void on_side_stream(std::function<void()> work) override;
    void join_side_stream() override;
    int side_ops() const { return side_ops_; }
    int reaches() const { return reaches_; }
    void compact(std::span<const kernels::CompactOp> ops) override;
    void graph(std::uint64_t key, FunctionRef<void()> work) override;
    std::uint64_t new_graph_key() override { return ++keys_; }
    DeviceTimer* timer() override { return nullptr; }
    /// Emulates a library for products of at least `min_rows` rows. Sums are floats and start at the last
    /// column, so their bits differ.
    Status use_cublaslt(int min_rows) override {
        if (min_rows != library_rows_) graphs_.clear();
        library_rows_ = min_rows;
        return {};
    }
    void set_dtype(kernels::Float16Kind dtype) override {
        if (dtype != this->dtype()) graphs_.clear();
        Backend::set_dtype(dtype);
    }
    int library_products() const { return library_products_; }

    int finishes() const { return finishes_; }
    int downloads() const { return downloads_; }
    int uploads() const { return uploads_; }
    std::size_t used() const { return used_; }
    /// Makes allocate() return null after `allocations` more calls.
    void leave(int allocations) { allocations_left_ = allocations; }
    int left() const { return allocations_left_; }
    /// Returns the number of downloads not yet synchronized and of side-stream jobs not yet joined.
    std::size_t under_way() const { return downloads_under_way_.size() + side_work_.size(); }
    int replayed() const { return replayed_; }  ///< graph() calls with a known key

  private:
    void move_together(const kernels::CompactOp& op, const std::int32_t* path, int count);
    /// Returns the host address of `bytes` bytes at a device address. Rejects a range outside an allocation.
    std::byte* inside(const void* address, std::size_t bytes, const char* what);
    template <typename T>
    T* at(T* address, std::size_t count, const char* what) {
        return reinterpret_cast<T*>(inside(address, count * sizeof(T), what));
    }
    float value_of(kernels::half_t half) const;
    static constexpr int dots_together = 8;
    /// Adds the products of `x` with each row, element by element in order. Several sums at a time are much
    /// faster than one after the other.
    void add_dots(std::span<const double> x, const std::array<const kernels::half_t*, dots_together>& rows,
                  std::array<double, dots_together>& sums) const;
    kernels::half_t to_half(float value) const;
    /// Returns `count` values of an array from `offset` on, checked as in inside().
    template <typename T>
    T* row(T* address, std::int64_t offset, std::size_t count, const char* what) {
        return at(address + offset, count, what);
    }

    /// Appends an op of graph() and its operands to the description of the pass.
    template <typename... Fields>
    void note(const char* op, Fields... fields) {
        if (!in_replay_) return;
        requested_ += op;
        ((requested_ += fmt::format(" {}", number(fields))), ...);
        requested_ += "\n";
    }
    template <typename T>
    static std::int64_t number(T field) {
        if constexpr (std::is_pointer_v<T>)
            return static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(field));
        else
            return static_cast<std::int64_t>(field);
    }

    kernels::DeviceInfo info_;
    std::string requested_;
    std::map<std::uint64_t, std::string> graphs_;
    struct Download {
        void* to;
        std::vector<std::byte> bytes;
    };
    std::vector<Download> downloads_under_way_;       ///< written by synchronize()
    std::map<const std::byte*, std::size_t> blocks_;  ///< sizes by host address
    std::size_t memory_, used_ = 0;
    int allocations_left_ = std::numeric_limits<int>::max();
    std::uint64_t keys_ = 0;
    std::vector<std::function<void()>> side_work_;
    int side_ops_ = 0, reaches_ = 0;
    int finishes_ = 0, downloads_ = 0, uploads_ = 0, replayed_ = 0;
    bool in_replay_ = false;
    int library_rows_ = 0, library_products_ = 0;
};
#undef DS_OP
#undef DS_OP_BATCH

}  // namespace draftscope::testing
