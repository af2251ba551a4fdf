#include "kernels/backend/device_matrix.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <functional>
#include <iterator>
#include <vector>

#include "base/numel.h"
#include "kernels/backend/workspace.h"

namespace draftscope::kernels {
namespace {

/// Size of an upload of packed rows.
constexpr std::size_t upload_bytes = std::size_t{32} << 20;

/// Returns the values of contiguous rows; strided ones are copied to `scratch` first.
const float* contiguous(Rows<const float> from, std::vector<float>& scratch) {
    if (from.stride == from.cols) return from.data;
    const auto cols = static_cast<std::size_t>(from.cols);
    scratch.resize(numel(from.rows, cols));
    for (int r = 0; r < from.rows; ++r)
        std::memcpy(scratch.data() + numel(r, cols), from.row_data(r), cols * sizeof(float));
    return scratch.data();
}

void download_rows(Backend& backend, const float* from, Rows<float> to, int cols,
                   std::vector<float>& scratch) {
    const auto count = numel(to.rows, cols);
    if (to.stride == cols) {
        backend.download(to.data, from, count * sizeof(float));
        return (void)backend.synchronize();
    }
    scratch.resize(count);
    backend.download(scratch.data(), from, count * sizeof(float));
    (void)backend.synchronize();
    for (int r = 0; r < to.rows; ++r)
        std::memcpy(to.row_data(r), scratch.data() + numel(r, cols),
                    static_cast<std::size_t>(cols) * sizeof(float));
}

}  // namespace

Activations DeviceWorkspace::upload_rounded(Backend& backend, const DeviceMatrix& matrix,
                                            Rows<const float> from) {
    const auto count = numel(from.rows, from.cols);
    auto* plain = reserve<float>(backend, x, count);
    if (plain == nullptr) return {};
    if (!x_half.reserve(backend, numel(from.rows, matrix.stride))) {
        backend.set_out_of_memory("an op's operands");
        return {};
    }
    backend.upload(plain, contiguous(from, rows), count * sizeof(float));
    backend.to_activations({plain, from.cols}, from.rows, from.cols, x_half, matrix.stride);
    return x_half;
}

std::string DeviceMatrixAccess::allocate(Backend& backend, int rows, int k, Matrix& matrix) {
    matrix = Matrix();
    matrix.n_ = rows;
    matrix.k_ = k;
    matrix.packing_ = {Precision::bf16, false};
    matrix.backend_ = &backend;
    const int stride = padded_columns(k);
    matrix.bytes_ = static_cast<std::size_t>(rows) * static_cast<std::size_t>(stride) * sizeof(half_t);
    const bool enough = matrix.device_data_.reserve(backend, std::max<std::size_t>(matrix.bytes_, 1));
    matrix.on_device_ = {matrix.device_data_.as<half_t>(), rows, k, stride};
    if (enough) return {};
    return fmt::format("no memory for a matrix of {} x {} ({:.2f} GB)", rows, k,
                       static_cast<double>(matrix.bytes_) * 1e-9);
}

Matrix DeviceMatrixAccess::pack(Backend& backend, int n, int k, RowSource source) {
    ThreadPool& pool = backend.pool();
    Matrix matrix;
    {
        const std::lock_guard lock(backend.submit_mutex());
        if (std::string missing = allocate(backend, n, k, matrix); !missing.empty())
            backend.set_error(std::move(missing));
    }
    auto* to = matrix.device_data_.as<half_t>();
    const auto round = backend.dtype() == Float16Kind::f16 ? float_to_f16 : to_bf16;
    if (to == nullptr) return matrix;
    const auto stride = static_cast<std::size_t>(matrix.on_device_.stride);
    const int batch = static_cast<int>(std::max<std::size_t>(
        1, std::min<std::size_t>(static_cast<std::size_t>(n), upload_bytes / (stride * sizeof(half_t)))));
    std::vector<half_t> packed(numel(batch, stride), 0);
    for (int first = 0; first < n; first += batch) {
        const int rows = std::min(batch, n - first);
        pool.parallel(pool.threads(), [&](int part) {
            std::vector<float> values(static_cast<std::size_t>(k));
            for (int r = part; r < rows; r += pool.threads()) {
                source(first + r, values.data());
                half_t* out = packed.data() + numel(r, stride);
                std::transform(values.begin(), values.end(), out, round);
            }
        });
        const std::lock_guard lock(backend.submit_mutex());
        backend.upload(to + numel(first, stride), packed.data(),
                       static_cast<std::size_t>(rows) * stride * sizeof(half_t));
    }
    return matrix;
}

std::optional<Matrix> DeviceMatrixAccess::pack_random(Backend& backend, int k,
                                                      std::span<const RandomRows> parts) {
    int rows = 0;
    for (const RandomRows& part : parts) rows += part.rows;
    const std::lock_guard lock(backend.submit_mutex());
    Matrix matrix;
    if (std::string missing = allocate(backend, rows, k, matrix); !missing.empty()) {
        backend.set_error(std::move(missing));
        return matrix;
    }
    auto* to = matrix.device_data_.as<half_t>();
    for (const RandomRows& part : parts) {
        if (!backend.fill_random(to, part.rows, k, part.values)) return std::nullopt;
        to += numel(part.rows, static_cast<std::size_t>(matrix.on_device_.stride));
    }
    return matrix;
}

std::optional<Matrix> pack_random(Backend& backend, int k, std::span<const RandomRows> parts) {
    if (backend.is_host()) return std::nullopt;
    return DeviceMatrixAccess::pack_random(backend, k, parts);
}

/// Sets the number of rows of `to`. Returns false if it is 0 or `to` has no data.
bool DeviceMatrixAccess::set_rows(Matrix& to, const DeviceMatrix& from, std::size_t rows) {
    to.n_ = static_cast<int>(rows);
    to.on_device_.n = to.n_;
    to.bytes_ = rows * static_cast<std::size_t>(from.stride) * sizeof(half_t);
    assert(to.device_data_.as<half_t>() == nullptr || to.device_data_.bytes() >= to.bytes_);
    return to.device_data_.as<half_t>() != nullptr && rows > 0;
}

void DeviceMatrixAccess::fill(Matrix& to, const DeviceMatrix& from, std::span<const TokenId> ids) {
    const std::lock_guard lock(to.backend_->submit_mutex());
    (void)enqueue_gather(to, from, ids);
}

bool DeviceMatrixAccess::enqueue_gather(Matrix& to, const DeviceMatrix& from, std::span<const TokenId> ids) {
    Backend& backend = *to.backend_;
    if (!set_rows(to, from, ids.size())) return ids.empty();
    DeviceWorkspace& space = backend.workspace();
    auto* list = space.reserve<std::int32_t>(backend, space.list, ids.size());
    if (list == nullptr) return false;
    backend.upload(list, ids.data(), ids.size_bytes());
    backend.gather({from, list, to.n_, to.device_data_.as<half_t>()});
    return true;
}

void DeviceMatrixAccess::fill_async(Matrix& to, const DeviceMatrix& from, std::span<const TokenId> ids,
                                    DeviceIndexSet& set) {
    if (std::adjacent_find(ids.begin(), ids.end(), std::greater_equal<>()) != ids.end())
        return fill(to, from, ids);
    Backend& backend = *to.backend_;
    const std::lock_guard lock(backend.submit_mutex());
    if (!set_rows(to, from, ids.size())) return;
    if (set.range != from.n) set = {};  // new memory is zeroed
    set.range = from.n;
    std::vector<std::int32_t> toggled;
    std::set_symmetric_difference(ids.begin(), ids.end(), set.host_list.begin(), set.host_list.end(),
                                  std::back_inserter(toggled));
    if (!set.bits.resize_at_least(backend, (static_cast<std::size_t>(from.n) + 31) / 32) ||
        !set.list.resize_at_least(backend, ids.size()) ||
        !set.toggled.resize_at_least(backend, toggled.size()))
        return backend.set_out_of_memory("a weight matrix");
    set.host_list.assign(ids.begin(), ids.end());
    const UpdateIndexSetOp op{set.toggled.as<std::int32_t>(), static_cast<int>(toggled.size()), from.n,
                              set.bits.as<std::uint32_t>(), set.list.as<std::int32_t>()};
    backend.async_gather({from, op.list, to.n_, to.device_data_.as<half_t>()}, op, toggled);
}

Matrix DeviceMatrixAccess::gather_rows(const Matrix& from, std::span<const TokenId> ids) {
    Backend& backend = *from.backend_;
    const std::lock_guard lock(backend.submit_mutex());
    Matrix matrix;
    std::string missing = allocate(backend, static_cast<int>(ids.size()), from.k_, matrix);
    if (missing.empty() && !enqueue_gather(matrix, from.on_device_, ids))
        missing = fmt::format("no memory for the list of {} rows of a matrix", ids.size());
    // The matrix may outlive a session, and the start of the next one clears out-of-memory errors.
    if (!missing.empty()) backend.set_error(std::move(missing));
    return matrix;
}

void DeviceMatrixAccess::unpack_row(const Matrix& from, int row, std::span<float> out) {
    const std::lock_guard lock(from.backend_->submit_mutex());
    const auto stride = static_cast<std::size_t>(from.on_device_.stride);
    std::vector<half_t> packed(stride);
    from.backend_->download(packed.data(), from.on_device_.data + numel(row, stride),
                            stride * sizeof(half_t));
    (void)from.backend_->synchronize();
    std::transform(packed.begin(), packed.begin() + from.k_, out.begin(),
                   from.backend_->dtype() == Float16Kind::f16 ? f16_to_float : from_bf16);
}

void DeviceMatrixAccess::reserve_rows(Matrix& matrix, Backend& backend, int rows, int k) {
    const std::lock_guard lock(backend.submit_mutex());
    // The lock also covers the release of the old memory. Packed rows do not outlive their sequence, so this
    // is an out-of-memory error only.
    if (std::string missing = allocate(backend, rows, k, matrix); !missing.empty())
        return backend.set_out_of_memory(std::move(missing));
    // Every call of a head reads its packed rows again (MicroSpec), so L2 persistence may pay off.
    (void)backend.set_l2_persisting(matrix.on_device_.data, matrix.device_data_.bytes());
}

void DeviceMatrixAccess::matmul(const Matrix& weights, Rows<const float> x, Rows<float> y,
                                const float* bias) {
    Backend& backend = *weights.backend_;
    const std::lock_guard lock(backend.submit_mutex());
    DeviceWorkspace& space = backend.workspace();
    MatmulOp op;
    op.weights = weights.on_device_;
    op.rows = x.rows;
    op.x = space.upload_rounded(backend, op.weights, x);
    op.y = space.reserve<float>(backend, space.y, numel(x.rows, y.cols));
    op.y_stride = y.cols;
    if (!op.x || op.y == nullptr || op.weights.data == nullptr) return;
    if (bias != nullptr) {
        const auto count = static_cast<std::size_t>(op.weights.n);
        auto* copy = space.reserve<float>(backend, space.bias, count);
        if (copy == nullptr) return;
        backend.upload(copy, bias, count * sizeof(float));
        op.bias = copy;
    }
    backend.matmul(op);
    download_rows(backend, op.y, y, y.cols, space.rows);
}

}  // namespace draftscope::kernels
