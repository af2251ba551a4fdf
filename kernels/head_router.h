#pragma once

#include <vector>

#include "kernels/device_array.h"
#include "kernels/matrix.h"

namespace draftscope::kernels {

/// A two-layer router on a device: scores = out act(in x + bias) + bias. The values between the layers are
/// rounded to 16 bits. The caller holds Device::submit_mutex().
class DeviceRouter {
  public:
    void set(std::vector<float> in_bias, std::vector<float> out_bias, Activation activation);
    /// Uploads the biases and reserves memory for up to `rows` rows. Returns false if memory runs out.
    bool reserve(const Matrix& in, const Matrix& out, int rows);
    /// Enqueues the router over x [rows, stride of `in`] and returns the scores, [rows, out.n()]. They are in
    /// device memory and valid until the next call. Call reserve() before.
    const float* enqueue(const Matrix& in, const Matrix& out, const half_t* x, int rows);
    /// The same for f32 rows in device memory, [rows, in.k()].
    const float* enqueue(const Matrix& in, const Matrix& out, const float* x, int rows);

  private:
    std::vector<float> in_bias_, out_bias_;
    Activation activation_ = Activation::none;
    DeviceArray<float> d_in_bias_, d_out_bias_, middle_, scores_;
    DeviceArray<half_t> x_, middle_half_;
};

}  // namespace draftscope::kernels
