#pragma once

#include <limits>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "kernels/device.h"

namespace draftscope::testing {

// Members of TwinDevice for each op. run() is the op's reference, in plain loops (twin_*.cpp, by theme).
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

/// A device whose memory and arithmetic are this machine's: what the engine does with a device can be tested
/// without one, and every kernel has something to be compared to. Its addresses cannot be read by the host
/// and host addresses are refused by its ops, so a mix-up ends the test.
class TwinDevice final : public kernels::Device {
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
    /// Runs when it is joined, as late as it may: who reads the rows before then finds the old ones.
    void async_gather(const kernels::GatherOp& op, const kernels::UpdateIndexSetOp& set,
                      std::span<const std::int32_t> toggled) override;
    void on_side_stream(std::function<void()> work) override;
    void join_side_stream() override;
    int asides() const { return asides_; }
    int reaches() const { return reaches_; }
    void compact(const kernels::CompactOp& op) override;
    void compact(std::span<const kernels::CompactOp> ops) override;
    void graph(std::uint64_t key, FunctionRef<void()> work) override;
    std::uint64_t new_graph_key() override { return ++keys_; }
    DeviceTimer* timer() override { return nullptr; }
    /// Has a memory of its own, so that an op on the wrong queue is refused.
    std::unique_ptr<kernels::Device> create_stream() override {
        ++besides_;
        auto made = std::make_unique<TwinDevice>();
        made->set_dtype(dtype());
        made->leave(left_beside_);
        return made;
    }
    int besides() const { return besides_; }
    /// Products of so many rows are summed in floats from the last column on: other bits, as a library has.
    Status use_cublaslt(int min_rows) override {
        if (min_rows != library_rows_) graphs_.clear();
        library_rows_ = min_rows;
        return {};
    }
    void set_dtype(kernels::Float16Kind dtype) override {
        if (dtype != this->dtype()) graphs_.clear();
        Device::set_dtype(dtype);
    }
    int library_products() const { return library_products_; }

    int finishes() const { return finishes_; }
    int downloads() const { return downloads_; }
    std::size_t used() const { return used_; }
    /// Memory is out after that many allocations more.
    void leave(int allocations) { allocations_left_ = allocations; }
    int left() const { return allocations_left_; }
    /// The same of queues beside it that come.
    void leave_beside(int allocations) { left_beside_ = allocations; }
    /// Downloads that were asked for and not waited for, and work aside that was not joined.
    std::size_t under_way() const { return downloads_under_way_.size() + aside_.size(); }
    int replayed() const { return replayed_; }  ///< passes that a graph would have run

  private:
    void move_together(const kernels::CompactOp& op, const std::int32_t* path, int count);
    /// Checks that `bytes` from a device address lie in one allocation.
    std::byte* inside(const void* address, std::size_t bytes, const char* what);
    template <typename T>
    T* at(T* address, std::size_t count, const char* what) {
        return reinterpret_cast<T*>(inside(address, count * sizeof(T), what));
    }
    float value_of(kernels::half_t half) const;
    kernels::half_t to_half(float value) const;
    /// A row of an array, when there is one.
    template <typename T>
    T* row(T* address, std::int64_t offset, std::size_t count, const char* what) {
        return at(address + offset, count, what);
    }

    /// What an op inside replay() was asked with.
    template <typename... Fields>
    void note(const char* op, Fields... fields) {
        if (!in_replay_) return;
        asked_ += op;
        ((asked_ += fmt::format(" {}", number(fields))), ...);
        asked_ += "\n";
    }
    template <typename T>
    static std::int64_t number(T field) {
        if constexpr (std::is_pointer_v<T>)
            return static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(field));
        else
            return static_cast<std::int64_t>(field);
    }

    kernels::DeviceInfo info_;
    std::string asked_;
    std::map<std::uint64_t, std::string> graphs_;
    struct Download {
        void* to;
        std::vector<std::byte> bytes;
    };
    std::vector<Download> downloads_under_way_;       ///< arrive with finish()
    std::map<const std::byte*, std::size_t> blocks_;  ///< by true address
    std::size_t memory_, used_ = 0;
    int allocations_left_ = std::numeric_limits<int>::max();
    int left_beside_ = std::numeric_limits<int>::max();
    std::uint64_t keys_ = 0;
    std::vector<std::function<void()>> aside_;
    int asides_ = 0, reaches_ = 0;
    int finishes_ = 0, downloads_ = 0, replayed_ = 0, besides_ = 0;
    bool in_replay_ = false;
    int library_rows_ = 0, library_products_ = 0;
};
#undef DS_OP
#undef DS_OP_BATCH

}  // namespace draftscope::testing
