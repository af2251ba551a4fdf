#include "engine/draft/eagle_on_device.h"

#include <cstring>

namespace draftscope {
namespace {

std::size_t count(int rows, int cols) {
    return static_cast<std::size_t>(rows) * static_cast<std::size_t>(cols);
}

}  // namespace

Status EagleOnDevice::prepare(kernels::Device& device, const LayerShape& shape,
                              const kernels::RopeTable& rope, const DecoderLayer& layer, int input_width) {
    shape_ = shape;
    layer_ = {&layer, 1};
    return decoder_.prepare(device, shape, rope, layer_, input_width);
}

const float* EagleOnDevice::keep(std::span<const float> values) {
    const std::lock_guard lock(device().busy());
    return decoder_.keep(values);
}

bool EagleOnDevice::begin(const DecoderBatch& batch, Rows<const float> inputs) {
    kernels::Device& on = device();
    const int rows = inputs.rows, stride = kernels::padded_columns(inputs.cols);
    const void* before[] = {inputs_.as<void>(), fused_.as<void>()};
    const Status begun = decoder_.begin(batch);
    if (!begun.ok() || !inputs_.reserve(on, count(rows, inputs.cols) * sizeof(float)) ||
        !fused_.reserve(on, count(rows, stride) * sizeof(kernels::Bf16))) {
        on.fail("out of device memory for the drafter's rows");
        return false;
    }
    if (before[0] != inputs_.as<void>() || before[1] != fused_.as<void>()) decoder_.forget_graphs();
    const float* data = inputs.data;
    if (inputs.stride != inputs.cols) {
        staging_.resize(count(rows, inputs.cols));
        for (int r = 0; r < rows; ++r)
            std::memcpy(staging_.data() + count(r, inputs.cols), inputs.row_data(r),
                        static_cast<std::size_t>(inputs.cols) * sizeof(float));
        data = staging_.data();
    }
    on.upload(inputs_.as<float>(), data, count(rows, inputs.cols) * sizeof(float));
    return true;
}

void EagleOnDevice::end(Rows<float> out) {
    const auto width = static_cast<std::size_t>(out.cols) * sizeof(float);
    if (out.stride == out.cols) {
        device().download(out.data, decoder_.residual(), static_cast<std::size_t>(out.rows) * width);
    } else {
        for (int r = 0; r < out.rows; ++r)
            device().download(out.row_data(r), decoder_.residual() + count(r, out.cols), width);
    }
    (void)device().finish();
}

void EagleOnDevice::run_fused(const DecoderBatch& batch, Rows<const float> inputs, const kernels::Matrix& fc,
                              const float* bias, Rows<float> out) {
    const std::lock_guard lock(device().busy());
    if (inputs.rows == 0 || !begin(batch, inputs)) return;
    kernels::Device& on = device();
    decoder_.replay({}, [&] {
        const int stride = fc.device_matrix().stride;
        on.round({inputs_.as<float>(), inputs.cols, inputs.rows, inputs.cols, fused_.as<kernels::Bf16>(),
                  stride, stride});
        kernels::MatmulOp op;
        op.weights = fc.device_matrix();
        op.x = fused_.as<kernels::Bf16>();
        op.rows = inputs.rows;
        op.y = decoder_.residual();
        op.y_stride = shape_.hidden;
        op.bias = bias;
        on.matmul(op);
        decoder_.take_residual(nullptr);
        decoder_.attend(0, 0, decoder_.input());
        decoder_.feed_forward(0);
    });
    end(out);
}

void EagleOnDevice::run_joined(const DecoderBatch& batch, Rows<const float> inputs, const Norms& norms,
                               Rows<float> out) {
    const std::lock_guard lock(device().busy());
    if (inputs.rows == 0 || !begin(batch, inputs)) return;
    kernels::Device& on = device();
    const int d = shape_.hidden;
    decoder_.replay({}, [&] {
        const int stride = kernels::padded_columns(2 * d);
        kernels::RmsNormOp norm;
        norm.x = inputs_.as<float>();
        norm.x_stride = 2 * d;
        norm.rows = inputs.rows;
        norm.width = d;
        norm.weight = norms.input;
        norm.eps = shape_.norm_eps;
        norm.half = fused_.as<kernels::Bf16>();
        norm.half_stride = stride;
        norm.half_columns = d;
        on.rms_norm(norm);
        norm.x = inputs_.as<float>() + d;
        norm.weight = norms.hidden;
        norm.half = fused_.as<kernels::Bf16>() + d;
        norm.half_columns = stride - d;
        if (norms.before_residual) {
            norm.y = decoder_.residual();
            norm.y_stride = d;
        } else {
            on.copy_rows({norm.x, 2 * d, nullptr, inputs.rows, d, decoder_.residual(), d});
        }
        on.rms_norm(norm);
        decoder_.attend(0, 0, fused_.as<kernels::Bf16>());
        decoder_.feed_forward(0);
        if (norms.output == nullptr) return;
        kernels::RmsNormOp last;
        last.x = decoder_.residual();
        last.y = decoder_.residual();
        last.x_stride = last.y_stride = d;
        last.rows = inputs.rows;
        last.width = d;
        last.weight = norms.output;
        last.eps = shape_.norm_eps;
        on.rms_norm(last);
    });
    end(out);
}

}  // namespace draftscope
