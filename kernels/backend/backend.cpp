#include "kernels/backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "kernels/backend/workspace.h"

namespace draftscope::kernels {
Backend::Backend(std::unique_ptr<ThreadPool> pool, const BackendLimits& limits)
    : pool_(std::move(pool)), limits_(limits), workspace_(std::make_unique<DeviceWorkspace>()) {}
Backend::~Backend() = default;

void Backend::drop_workspace() {
    workspace_.reset();
}

void Backend::async_gather(const GatherOp& op, const UpdateIndexSetOp& set,
                           std::span<const std::int32_t> toggled) {
    upload(const_cast<std::int32_t*>(set.toggled), toggled.data(), toggled.size_bytes());
    update_index_set(set);
    gather(op);
}

Error Backend::out_of_memory(std::string_view what, std::string_view advice) {
    const auto bytes = static_cast<double>(memory().refused_bytes());
    const std::string size = bytes < 1024.0 * 1024.0 ? fmt::format("{:.1f} KiB", bytes / 1024.0)
                                                     : fmt::format("{:.1f} MiB", bytes / 1024.0 / 1024.0);
    return failed("out of {} for {}: {} did not fit{}{}", is_host() ? "memory" : "device memory", what, size,
                  advice.empty() ? "" : "; ", advice);
}

Status Backend::submit(FunctionRef<Status()> enqueue) {
    const std::lock_guard lock(submit_mutex_);
    Status enqueued = enqueue();
    Status finished = synchronize();
    return enqueued.ok() ? finished : enqueued;
}

Status Backend::use_cublaslt(int min_rows) {
    if (min_rows == 0) return {};
    return bad_input("{} has no library of products; use --numerics exact", info().name);
}

Status Backend::status() const {
    const std::string& what = error_.empty() ? out_of_memory_ : error_;
    if (what.empty()) return {};
    return failed("{}: {}", info().name, what);
}

void Backend::to_activations(const NormSpec& x, int rows, int width, Activations y, int stride) {
    if (x.weight == nullptr) return cast({x.x, x.x_stride, rows, width, y, stride, stride});
    RmsNormOp norm;
    norm.x = x.x;
    norm.x_stride = x.x_stride;
    norm.rows = rows;
    norm.width = width;
    norm.weight = x.weight;
    norm.eps = x.eps;
    norm.half = y;
    norm.half_stride = norm.half_columns = stride;
    rms_norm(norm);
}

void Backend::fused_matmul(const FusedMatmulOp& op) {
    const MatmulOp& product = op.product;
    const DeviceMatrix& weights = product.weights;
    if (op.norm.x != nullptr) to_activations(op.norm, product.rows, weights.k, product.x, weights.stride);
    matmul(product);
    if (op.gated)
        silu_mul({product.y, product.y_stride, product.rows, weights.n / 2, op.gated, op.gated_stride});
}

/// The nodes are independent, so the memory for weights only limits how many one op samples.
void Backend::sample_and_follow(const RejectionSampleOp& op, int max_nodes,
                                std::span<const ListChildrenOp> lists,
                                std::span<const FollowAcceptedOp> paths) {
    list_children(lists);
    for (int first = 0; first < op.count; first += max_nodes) {
        RejectionSampleOp part = op;
        part.count = std::min(max_nodes, op.count - first);
        part.nodes += first;
        part.accepted += first;
        part.bonus += first;
        part.bonus_logits += first;
        rejection_sample(part);
    }
    follow_accepted(paths);
}

void Backend::accept_typical_trees(const EntropyOp& entropy_op, std::span<const AcceptTypicalOp> trees) {
    entropy(entropy_op);
    accept_typical(trees);
}

DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept
    : memory_(other.memory_),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
}

DeviceBuffer::~DeviceBuffer() {
    if (data_ != nullptr) memory_->release(data_);
}

bool DeviceBuffer::reserve(DeviceMemory& memory, std::size_t bytes) {
    if (bytes <= bytes_ && data_ != nullptr) return true;
    if (data_ != nullptr) memory_->release(data_);
    memory_ = &memory.memory();
    data_ = memory_->allocate(bytes);
    bytes_ = data_ == nullptr ? 0 : bytes;
    if (data_ == nullptr) memory_->set_refused_bytes(bytes);
    return data_ != nullptr;
}

}  // namespace draftscope::kernels
