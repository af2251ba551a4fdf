#include "tests/support/simt_backend.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <vector>

#include "kernels/cuda/launch.h"

namespace draftscope::testing {
namespace {

using namespace kernels;

#define DS_OP(name, Op)                   \
    void enqueue(const Op& op) override { \
        run(op);                          \
    }
#define DS_OP_BATCH(name, Op)                        \
    void enqueue(std::span<const Op> ops) override { \
        run(ops);                                    \
    }

class SimtBackend final : public Backend {
  public:
    explicit SimtBackend(unsigned order) : order_(order) {
        info_.name = "kernels on the host";
        info_.architecture = "simt";
        info_.processors = 1;
        info_.memory_bytes = std::uint64_t{4} << 30;
    }
    ~SimtBackend() override { drop_workspace(); }
    const DeviceInfo& info() const override { return info_; }

    /// The size is rounded up to 16 bytes, and the memory ends at a protected page.
    void* allocate(std::size_t bytes) override {
        const std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
        const std::size_t rounded = (std::max<std::size_t>(bytes, 1) + 15) / 16 * 16;
        const std::size_t mapped = (rounded + page - 1) / page * page;
        auto* start = static_cast<char*>(
            mmap(nullptr, mapped + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        if (start == MAP_FAILED) return nullptr;
        mprotect(start + mapped, page, PROT_NONE);
        char* data = start + mapped - rounded;
        maps_[data] = {start, mapped + page};
        return data;
    }
    void release(void* data) override {
        const auto found = maps_.find(static_cast<char*>(data));
        munmap(found->second.first, found->second.second);
        maps_.erase(found);
    }
    void upload(void* to, const void* from, std::size_t bytes) override {
        if (bytes > 0) std::memcpy(to, from, bytes);
    }
    void download(void* to, const void* from, std::size_t bytes) override {
        if (bytes > 0) std::memcpy(to, from, bytes);
    }
    void copy(void* to, const void* from, std::size_t bytes) override {
        if (bytes > 0) std::memmove(to, from, bytes);
    }
    Status synchronize() override { return failure(); }

    DS_DEVICE_OPS(DS_OP, DS_OP_BATCH)
    void compact(std::span<const CompactOp> ops) override {
        cuda::simt::set_order(order_);
        std::vector<half_t> scratch(cuda::compact_scratch(ops));
        cuda::launch_compact(ops, scratch.data(), nullptr);
    }
    void graph(std::uint64_t, FunctionRef<void()> work) override { work(); }
    std::uint64_t new_graph_key() override { return ++keys_; }
    DeviceTimer* timer() override { return nullptr; }

  private:
    /// `op` is an op or a span of ops.
    template <typename Op>
    void run(const Op& op) {
        cuda::simt::set_order(order_);
        cuda::launch(op, dtype(), nullptr);
    }

    unsigned order_;
    DeviceInfo info_;
    std::map<char*, std::pair<char*, std::size_t>> maps_;
    std::uint64_t keys_ = 0;
};
#undef DS_OP
#undef DS_OP_BATCH

}  // namespace

std::unique_ptr<kernels::Backend> make_simt_backend(unsigned order) {
    return std::make_unique<SimtBackend>(order);
}

}  // namespace draftscope::testing
