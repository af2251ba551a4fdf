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
#include "kernels/backend.h"

namespace draftscope::kernels {

/// Weight formats. int4 has one f16 scale and minimum per row and 32 columns: w = scale * q + minimum with q
/// in 0 .. 15. This holds GGUF's Q4_0 and Q4_1 exactly. Its activations are quantised to one byte, with one
/// scale per 32.
enum class Precision { f32, bf16, int8, int4 };
std::string_view to_text(Precision precision);
std::optional<Precision> precision_from(std::string_view text);
/// Includes the scales, but not the padding of packed matrices.
double bytes_per_weight(Precision precision);

/// Format of a packed matrix. Symmetric int4 stores no minimums: each is -8 times its scale, as in Q4_0.
struct Packing {
    Precision precision = Precision::f32;
    bool symmetric = false;
    bool operator==(const Packing&) const = default;
};

/// Fills `out` (K floats) with row `row` of the matrix being packed. Pool threads call it, one row at a time.
using RowSource = FunctionRef<void(int row, float* out)>;

/// A weight matrix W of shape [N, K], N outputs and K inputs, in the tile order of its ops. In int8, scales
/// are symmetric, one per row and 128 columns; activations are quantised to two bytes. A device keeps
/// it in its memory, in its 16-bit format and row-major, and its ops run there.
class Matrix {
  public:
    Matrix() = default;
    Matrix(Matrix&&) noexcept = default;
    Matrix& operator=(Matrix&&) noexcept = default;

    /// Packs a matrix for ops of `backend`.
    static Matrix pack(Backend& backend, Precision precision, int n, int k, RowSource source);
    /// Packs a matrix for the CPU's ops.
    static Matrix pack(ThreadPool& pool, Precision precision, int n, int k, RowSource source);
    /// Returns the rows `ids`, in that order, as a separate matrix with bit-identical rows. A static draft
    /// vocabulary's logits therefore equal those of the full head.
    Matrix gather_rows(ThreadPool& pool, std::span<const TokenId> ids) const;

    int n() const { return n_; }
    int k() const { return k_; }
    Precision precision() const { return packing_.precision; }
    Packing packing() const { return packing_; }
    bool empty() const { return n_ == 0; }
    std::size_t bytes() const { return bytes_; }  ///< bytes that one matmul reads
    /// Row `row` as floats, exactly as matmul() uses it.
    void unpack_row(int row, std::span<float> out) const;

    const std::byte* data() const { return data_.get(); }  ///< null on a device
    bool on_device() const { return backend_ != nullptr; }
    /// The device of a matrix with on_device().
    Backend& device() const { return *backend_; }
    /// This matrix as an operand of ops. It must not move while the operand is in use.
    DeviceMatrix device_matrix() const {
        return on_device() ? on_device_ : DeviceMatrix{nullptr, n_, k_, padded_columns(k_), this};
    }

  private:
    struct Free {
        void operator()(std::byte* p) const;
    };
    std::unique_ptr<std::byte[], Free> data_;
    std::size_t bytes_ = 0;
    int n_ = 0;
    int k_ = 0;
    Packing packing_;
    Backend* backend_ = nullptr;
    DeviceBuffer device_data_;
    DeviceMatrix on_device_;
    // The CPU's and the device's ops build matrices through these two. They stay until a backend owns the
    // storage: a matrix is then a plain struct of shape, packing and storage.
    friend struct MatrixAccess;
    friend struct DeviceMatrixAccess;
};

}  // namespace draftscope::kernels
