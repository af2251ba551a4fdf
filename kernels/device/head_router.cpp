#include "kernels/head_router.h"

#include <utility>

#include "base/numel.h"

namespace draftscope::kernels {
namespace {

std::size_t count(int rows, int cols) {
    return numel(rows, cols);
}

MatmulOp product(const Matrix& weights, const half_t* x, int rows, float* y, const DeviceBuffer& bias) {
    MatmulOp op;
    op.weights = weights.device_matrix();
    op.x = x;
    op.rows = rows;
    op.y = y;
    op.y_stride = op.weights.n;
    op.bias = bias.as<float>();
    return op;
}

}  // namespace

void DeviceRouter::set(std::vector<float> in_bias, std::vector<float> out_bias, Activation activation) {
    in_bias_ = std::move(in_bias);
    out_bias_ = std::move(out_bias);
    activation_ = activation;
    d_in_bias_ = {};
    d_out_bias_ = {};
}

bool DeviceRouter::reserve(const Matrix& in, const Matrix& out, int rows) {
    Device& device = in.device();
    return (!d_in_bias_.empty() || d_in_bias_.upload_exact(device, in_bias_)) &&
           (!d_out_bias_.empty() || d_out_bias_.upload_exact(device, out_bias_)) &&
           x_.resize_at_least(device, count(rows, in.device_matrix().stride)) &&
           middle_.resize_at_least(device, count(rows, in.n())) &&
           middle_half_.resize_at_least(device, count(rows, out.device_matrix().stride)) &&
           scores_.resize_at_least(device, count(rows, out.n()));
}

const float* DeviceRouter::enqueue(const Matrix& in, const Matrix& out, const half_t* x, int rows) {
    Device& device = in.device();
    device.matmul(product(in, x, rows, middle_.as<float>(), d_in_bias_));
    const int stride = out.device_matrix().stride;
    CastOp between{middle_.as<float>(), in.n(), rows, in.n(), middle_half_.as<half_t>(), stride, stride};
    between.activation = activation_;
    device.cast(between);
    device.matmul(product(out, middle_half_.as<half_t>(), rows, scores_.as<float>(), d_out_bias_));
    return scores_.as<float>();
}

const float* DeviceRouter::enqueue(const Matrix& in, const Matrix& out, const float* x, int rows) {
    const int stride = in.device_matrix().stride;
    in.device().cast({x, in.k(), rows, in.k(), x_.as<half_t>(), stride, stride});
    return enqueue(in, out, x_.as<half_t>(), rows);
}

}  // namespace draftscope::kernels
