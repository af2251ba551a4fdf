#include "kernels/head_rows.h"

#include <cassert>
#include <cstring>
#include <vector>

#include "kernels/device/workspace.h"

namespace draftscope::kernels {

namespace {

/// Asks for x W^T (+ bias), x on the device. Null when its memory is out. The caller holds Device::busy().
float* ask_product(Device& device, const Matrix& weights, const Bf16* x, int rows, const float* bias,
                   DeviceBuffer& into) {
    DeviceWorkspace& space = device.workspace();
    MatmulOp op;
    op.weights = weights.device_matrix();
    op.rows = rows;
    op.x = x;
    op.y = space.reserve<float>(device, into,
                                static_cast<std::size_t>(rows) * static_cast<std::size_t>(op.weights.n));
    op.y_stride = op.weights.n;
    if (op.x == nullptr || op.y == nullptr || op.weights.data == nullptr || rows == 0) return nullptr;
    if (bias != nullptr) {
        const auto count = static_cast<std::size_t>(op.weights.n);
        auto* copy = space.reserve<float>(device, space.bias, count);
        if (copy == nullptr) return nullptr;
        device.upload(copy, bias, count * sizeof(float));
        op.bias = copy;
    }
    device.matmul(op);
    return op.y;
}

/// Asks for the logits of a matrix, or of two factors. False when memory is out.
bool ask_logits(Device& device, const Matrix* down, const Matrix& up, Rows<const float> x,
                const float* bias) {
    DeviceWorkspace& space = device.workspace();
    if (down == nullptr) {
        const Bf16* half = space.upload_rounded(device, up.device_matrix(), x);
        return ask_product(device, up, half, x.rows, bias, space.logits) != nullptr;
    }
    const Bf16* half = space.upload_rounded(device, down->device_matrix(), x);
    const float* narrow = ask_product(device, *down, half, x.rows, nullptr, space.narrow);
    const int stride = up.device_matrix().stride;
    auto* rounded = space.reserve<Bf16>(device, space.narrow_half,
                                        static_cast<std::size_t>(x.rows) * static_cast<std::size_t>(stride));
    if (narrow == nullptr || rounded == nullptr) return false;
    device.round({narrow, down->n(), x.rows, down->n(), rounded, stride, stride});
    return ask_product(device, up, rounded, x.rows, bias, space.logits) != nullptr;
}

void top_set_of(const Matrix* down, const Matrix& up, Rows<const float> x, int k, Rows<std::int32_t> ids) {
    Device& device = up.device();
    const std::lock_guard lock(device.busy());
    DeviceWorkspace& space = device.workspace();
    if (!ask_logits(device, down, up, x, nullptr)) return;
    const auto cells = static_cast<std::size_t>(x.rows) * static_cast<std::size_t>(k);
    auto* found = space.reserve<std::int32_t>(device, space.ids, cells);
    if (found == nullptr) return;
    device.top_set({space.logits.as<float>(), up.n(), x.rows, up.n(), k, found});
    std::vector<std::int32_t> host(cells);
    device.download(host.data(), found, cells * sizeof(std::int32_t));
    (void)device.finish();
    const auto width = static_cast<std::size_t>(k);
    for (int r = 0; r < x.rows; ++r)
        std::memcpy(ids.row_data(r), host.data() + static_cast<std::size_t>(r) * width,
                    width * sizeof(std::int32_t));
}

void logits_of(const Matrix* down, const Matrix& up, Rows<const float> x, const float* bias) {
    Device& device = up.device();
    const std::lock_guard lock(device.busy());
    (void)ask_logits(device, down, up, x, bias);
    (void)device.finish();
}

}  // namespace

bool selects_on_device(const Matrix& weights, int support, int k) {
    return weights.on_device() && can_select(support, k);
}

void head_logits(const Matrix& weights, Rows<const float> x, const float* bias) {
    logits_of(nullptr, weights, x, bias);
}
void head_logits(const Matrix& down, const Matrix& up, Rows<const float> x) {
    logits_of(&down, up, x, nullptr);
}

void device_top_set(const Matrix& weights, Rows<const float> x, int k, Rows<std::int32_t> ids) {
    top_set_of(nullptr, weights, x, k, ids);
}
void device_top_set(const Matrix& down, const Matrix& up, Rows<const float> x, int k,
                    Rows<std::int32_t> ids) {
    top_set_of(&down, up, x, k, ids);
}

void select_logits(const Matrix& weights, int rows, int support, int k, Rows<std::int32_t> ids,
                   Rows<float> values, std::span<float> sums) {
    assert(k <= support && support <= weights.n() && k <= most_selected);
    Device& device = weights.device();
    const std::lock_guard lock(device.busy());
    DeviceWorkspace& space = device.workspace();
    const auto cells = static_cast<std::size_t>(rows) * static_cast<std::size_t>(k);
    SelectOp op;
    op.logits = space.logits.as<float>();
    op.stride = weights.n();
    op.rows = rows;
    op.support = support;
    op.k = k;
    op.scratch = space.reserve<std::byte>(device, space.select, select_scratch(rows, support, k));
    // One buffer, so that one download brings all three.
    auto* packed = space.reserve<std::int32_t>(device, space.ids, 2 * cells + static_cast<std::size_t>(rows));
    if (op.logits == nullptr || op.scratch == nullptr || packed == nullptr || rows == 0) return;
    op.ids = packed;
    op.values = reinterpret_cast<float*>(packed + cells);
    op.logsumexp = op.values + cells;
    device.select(op);
    std::vector<std::int32_t> host(2 * cells + static_cast<std::size_t>(rows));
    device.download(host.data(), packed, host.size() * sizeof(std::int32_t));
    (void)device.finish();
    const auto width = static_cast<std::size_t>(k);
    for (int r = 0; r < rows; ++r) {
        const std::size_t at = static_cast<std::size_t>(r) * width;
        std::memcpy(ids.row_data(r), host.data() + at, width * sizeof(std::int32_t));
        std::memcpy(values.row_data(r), host.data() + cells + at, width * sizeof(float));
    }
    std::memcpy(sums.data(), host.data() + 2 * cells, static_cast<std::size_t>(rows) * sizeof(float));
}

}  // namespace draftscope::kernels
