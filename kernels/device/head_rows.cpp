#include "kernels/head_rows.h"

#include <cassert>
#include <cstring>
#include <vector>

#include "base/numel.h"
#include "kernels/device/ask_rows.h"
#include "kernels/device/workspace.h"

namespace draftscope::kernels {

namespace {

/// Asks for x W^T, x on the device. Null when its memory is out. The caller holds Device::busy().
float* ask_product(Device& device, const Matrix& weights, const half_t* x, int rows, DeviceBuffer& into) {
    DeviceWorkspace& space = device.workspace();
    MatmulOp op;
    op.weights = weights.device_matrix();
    op.rows = rows;
    op.x = x;
    op.y = space.reserve<float>(device, into, numel(rows, op.weights.n));
    op.y_stride = op.weights.n;
    if (op.x == nullptr || op.y == nullptr || op.weights.data == nullptr || rows == 0) return nullptr;
    device.matmul(op);
    return op.y;
}

}  // namespace

const half_t* ask_rows(Device& device, const Matrix* down, const Matrix& up, Rows<const float> x) {
    DeviceWorkspace& space = device.workspace();
    const half_t* half = space.upload_rounded(device, (down == nullptr ? up : *down).device_matrix(), x);
    if (down == nullptr) return half;
    const float* narrow = ask_product(device, *down, half, x.rows, space.narrow);
    const int stride = up.device_matrix().stride;
    auto* rounded = space.reserve<half_t>(device, space.narrow_half, numel(x.rows, stride));
    if (narrow == nullptr || rounded == nullptr) return nullptr;
    device.cast({narrow, down->n(), x.rows, down->n(), rounded, stride, stride});
    return rounded;
}

void bring_candidates(Device& device, const std::int32_t* packed, int rows, int k, Rows<std::int32_t> ids,
                      Rows<float> values, std::span<float> sums) {
    const auto width = static_cast<std::size_t>(k), cells = numel(rows, width);
    std::vector<std::int32_t> host(2 * cells + static_cast<std::size_t>(rows));
    device.download(host.data(), packed, host.size() * sizeof(std::int32_t));
    (void)device.synchronize();
    for (int r = 0; r < rows; ++r) {
        const std::size_t at = numel(r, width);
        std::memcpy(ids.row_data(r), host.data() + at, width * sizeof(std::int32_t));
        std::memcpy(values.row_data(r), host.data() + cells + at, width * sizeof(float));
    }
    std::memcpy(sums.data(), host.data() + 2 * cells, static_cast<std::size_t>(rows) * sizeof(float));
}

namespace {

void top_set_of(const Matrix* down, const Matrix& up, Rows<const float> x, int k, Rows<std::int32_t> ids) {
    Device& device = up.device();
    const std::lock_guard lock(device.submit_mutex());
    DeviceWorkspace& space = device.workspace();
    const float* logits = ask_product(device, up, ask_rows(device, down, up, x), x.rows, space.logits);
    const auto cells = numel(x.rows, k);
    auto* found = space.reserve<std::int32_t>(device, space.ids, cells);
    if (logits == nullptr || found == nullptr) return;
    device.topk_set({logits, up.n(), x.rows, up.n(), k, found});
    std::vector<std::int32_t> host(cells);
    device.download(host.data(), found, cells * sizeof(std::int32_t));
    (void)device.synchronize();
    const auto width = static_cast<std::size_t>(k);
    for (int r = 0; r < x.rows; ++r)
        std::memcpy(ids.row_data(r), host.data() + row_offset(r, width), width * sizeof(std::int32_t));
}

void candidates_of(const Matrix* down, const Matrix& up, Rows<const float> x, const float* bias, int support,
                   int k, Rows<std::int32_t> ids, Rows<float> values, std::span<float> sums) {
    assert(k <= support && support <= up.n() && k <= max_topk);
    Device& device = up.device();
    const std::lock_guard lock(device.submit_mutex());
    DeviceWorkspace& space = device.workspace();
    const auto rows = static_cast<std::size_t>(x.rows), cells = rows * static_cast<std::size_t>(k);
    MatmulTopKOp op;
    op.weights = up.device_matrix();
    op.x = ask_rows(device, down, up, x);
    op.rows = x.rows;
    op.support = support;
    op.k = k;
    op.scratch =
        space.reserve<std::byte>(device, space.select, matmul_topk_scratch_bytes(x.rows, support, k));
    // One buffer, so that one download brings all three.
    auto* packed = space.reserve<std::int32_t>(device, space.ids, 2 * cells + rows);
    if (op.weights.data == nullptr || op.x == nullptr || op.scratch == nullptr || packed == nullptr) return;
    if (bias != nullptr) {
        const auto count = static_cast<std::size_t>(op.weights.n);
        auto* copy = space.reserve<float>(device, space.bias, count);
        if (copy == nullptr) return;
        device.upload(copy, bias, count * sizeof(float));
        op.bias = copy;
    }
    op.ids = packed;
    op.values = reinterpret_cast<float*>(packed + cells);
    op.logsumexp = op.values + cells;
    device.matmul_topk(op);
    bring_candidates(device, packed, x.rows, k, ids, values, sums);
}

}  // namespace

bool selects_on_device(const Matrix& weights, int support, int k) {
    return weights.on_device() && k >= 1 && k <= max_topk && k <= support;
}

void head_candidates(const Matrix& weights, Rows<const float> x, const float* bias, int support, int k,
                     Rows<std::int32_t> ids, Rows<float> values, std::span<float> sums) {
    candidates_of(nullptr, weights, x, bias, support, k, ids, values, sums);
}
void head_candidates(const Matrix& down, const Matrix& up, Rows<const float> x, int support, int k,
                     Rows<std::int32_t> ids, Rows<float> values, std::span<float> sums) {
    candidates_of(&down, up, x, nullptr, support, k, ids, values, sums);
}

bool selects_on_device(const RowMajorMatrix& store, int support, int k) {
    return store.on_device() && k <= support && can_topk(support, k);
}

void ask_candidates(Device& device, const RowMajorMatrix& store, const ScatteredRows& rows) {
    MatmulOp product;
    product.weights = store.device_matrix();
    product.x = rows.x;
    product.rows = rows.x_rows;
    product.y = rows.logits;
    product.y_stride = rows.support;
    product.chosen_count = rows.at;
    product.chosen = rows.at + 1;
    product.max_chosen = rows.support;
    device.matmul(product);
    TopKOp select;
    select.logits = rows.logits;
    select.stride = select.support = rows.support;
    select.rows = rows.x_rows;
    select.k = rows.k;
    select.ids = rows.ids;
    select.values = rows.values;
    select.logsumexp = rows.sums;
    select.scratch = rows.scratch;
    device.topk(select);
}

void head_candidates(Device& device, const RowMajorMatrix& store, std::span<const TokenId> at,
                     Rows<const float> x, int k, Rows<std::int32_t> ids, Rows<float> values,
                     std::span<float> sums) {
    const std::lock_guard lock(device.submit_mutex());
    DeviceWorkspace& space = device.workspace();
    ScatteredRows rows;
    rows.support = static_cast<int>(at.size());
    rows.x = space.upload_rounded(device, store.device_matrix(), x);
    rows.x_rows = x.rows;
    rows.k = k;
    const auto count = static_cast<std::size_t>(x.rows), cells = count * static_cast<std::size_t>(k);
    auto* list = space.reserve<std::int32_t>(device, space.list, at.size() + 1);
    rows.logits = space.reserve<float>(device, space.logits, count * at.size());
    rows.scratch =
        space.reserve<std::byte>(device, space.select, topk_scratch_bytes(x.rows, rows.support, k));
    auto* packed = space.reserve<std::int32_t>(device, space.ids, 2 * cells + count);
    if (rows.x == nullptr || list == nullptr || rows.logits == nullptr || rows.scratch == nullptr ||
        packed == nullptr)
        return;
    std::vector<std::int32_t> chosen(1, rows.support);
    chosen.insert(chosen.end(), at.begin(), at.end());
    device.upload(list, chosen.data(), chosen.size() * sizeof(std::int32_t));
    rows.at = list;
    rows.ids = packed;
    rows.values = reinterpret_cast<float*>(packed + cells);
    rows.sums = rows.values + cells;
    ask_candidates(device, store, rows);
    bring_candidates(device, packed, x.rows, k, ids, values, sums);
}

void device_top_set(const Matrix& weights, Rows<const float> x, int k, Rows<std::int32_t> ids) {
    top_set_of(nullptr, weights, x, k, ids);
}
void device_top_set(const Matrix& down, const Matrix& up, Rows<const float> x, int k,
                    Rows<std::int32_t> ids) {
    top_set_of(&down, up, x, k, ids);
}

}  // namespace draftscope::kernels
