#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "base/function_ref.h"
#include "base/spans.h"
#include "base/units.h"
#include "kernels/device.h"

namespace draftscope::kernels {

/// int4: one f16 scale and minimum per row and 32 columns, w = scale * q + minimum with q in 0 .. 15, which
/// holds GGUF's Q4_0 and Q4_1 exactly; activations get one byte each and a scale for 32 of them.
enum class Precision { f32, bf16, int8, int4 };
std::string_view to_text(Precision precision);
std::optional<Precision> precision_from(std::string_view text);
/// With the scales' share: what a packed matrix takes, but for padding.
double bytes_per_weight(Precision precision);

/// What a packed matrix holds. Symmetric int4 stores no minimums: each is -8 times its scale, as in Q4_0.
struct Packing {
    Precision precision = Precision::f32;
    bool symmetric = false;
    bool operator==(const Packing&) const = default;
};

/// Fills `out` (K floats) with row `row` of the matrix being packed. Called from pool threads, one row at a
/// time.
using RowSource = FunctionRef<void(int row, float* out)>;

/// A weight matrix W of shape [N, K] (N outputs, K inputs) in the tile order of the op that reads it.
/// int8: symmetric, with one scale per row and 128 columns; activations get two bytes each on the fly.
/// Packed by an Exec with a device it lies there, in bf16 and row order, and ops on it run there.
class Matrix {
  public:
    Matrix() = default;
    Matrix(Matrix&&) noexcept = default;
    Matrix& operator=(Matrix&&) noexcept = default;

    static Matrix pack(Exec& exec, Precision precision, int n, int k, RowSource source);
    /// The rows `ids` of this matrix, in that order, as a matrix of its own with bit-identical rows (a static
    /// draft vocabulary: the logit of a kept token equals the full head's).
    Matrix gather_rows(Exec& exec, std::span<const TokenId> ids) const;

    int n() const { return n_; }
    int k() const { return k_; }
    Precision precision() const { return packing_.precision; }
    Packing packing() const { return packing_; }
    bool empty() const { return n_ == 0; }
    std::size_t bytes() const { return bytes_; }  ///< what one matmul has to read
    /// Row `row` as floats, exactly as matmul sees it.
    void unpack_row(int row, std::span<float> out) const;

    const std::byte* data() const { return data_.get(); }  ///< null on a device
    bool on_device() const { return device_ != nullptr; }
    /// Of a matrix on a device.
    Device& device() const { return *device_; }
    const DeviceMatrix& device_matrix() const { return on_device_; }

  private:
    struct Free {
        void operator()(std::byte* p) const;
    };
    std::unique_ptr<std::byte[], Free> data_;
    std::size_t bytes_ = 0;
    int n_ = 0;
    int k_ = 0;
    Packing packing_;
    Device* device_ = nullptr;
    DeviceBuffer device_data_;
    DeviceMatrix on_device_;
    friend struct MatrixAccess;
    friend struct DeviceMatrixAccess;
};

}  // namespace draftscope::kernels
