#pragma once

#include <vector>

#include "kernels/device_array.h"
#include "kernels/matrix.h"

namespace draftscope::kernels {

/// A router of two layers on a device, out act(in x + bias) + bias, with values of 16 bits between them as a
/// product reads them. The caller holds Device::busy(), but for run().
class DeviceRouter {
  public:
    void set(std::vector<float> in_bias, std::vector<float> out_bias, Activation activation);
    /// Memory for up to `rows` rows; false when there is none.
    bool reserve(const Matrix& in, const Matrix& out, int rows);
    /// Scores [rows, out.n()], there until the next call; x as `in` reads it. Behind reserve().
    const float* ask(const Matrix& in, const Matrix& out, const half_t* x, int rows);
    /// The same of rows of floats there, [rows, in.k()].
    const float* ask(const Matrix& in, const Matrix& out, const float* x, int rows);
    /// Of host rows to host rows, with one wait.
    void run(const Matrix& in, const Matrix& out, Rows<const float> x, Rows<float> scores);

  private:
    std::vector<float> in_bias_, out_bias_;
    Activation activation_ = Activation::none;
    DeviceArray<float> in_bias_there_, out_bias_there_, middle_, scores_;
    DeviceArray<half_t> x_, middle_half_;
};

}  // namespace draftscope::kernels
