#pragma once

#include <cstddef>

#include "kernels/cpu/matmul/fused.h"
#include "kernels/cpu/matmul/layout.h"
#include "kernels/cpu/matmul/matmul_kernels.h"
#include "kernels/cpu/vector/dispatch.h"

namespace draftscope::kernels {

/// Up to this many rows, every thread prepares the activations itself, which is cheaper than another barrier.
inline constexpr int max_rows_quantised_per_thread = 8;

/// The matmul kernels of an instruction set.
const MatmulKernels& matmul_kernels_for(Isa isa);

inline MatmulBlocks blocks_kernel(const MatmulKernels& kernels, Packing packing) {
    switch (packing.precision) {
        case Precision::f32:
            return kernels.f32;
        case Precision::bf16:
            return kernels.bf16;
        case Precision::int8:
            return kernels.int8;
        case Precision::int4:
            return packing.symmetric ? kernels.int4_symmetric : kernels.int4;
    }
    return nullptr;
}

/// Activations in the format that the weights' kernel reads, in one scratch buffer. Rows are normalised
/// during preparation.
class ProductInput {
  public:
    ProductInput(const MatmulKernels& kernels, Precision precision, Rows<const float> x,
                 const RowKernels* row_kernels = nullptr, const PreNorm& norm = {})
        : kernels_(kernels),
          row_kernels_(norm.weight.empty() ? nullptr : row_kernels),
          norm_(norm),
          int8_(precision == Precision::int8 || precision == Precision::int4),
          int4_(precision == Precision::int4),
          bf16_(precision == Precision::bf16 && kernels.bf16_activations),
          x_(x),
          rows_(x.rows > rows_padding ? round_up(x.rows, rows_padding) : x.rows),
          groups_(ceil_div(x.cols, int4_ ? int4_block : quant_block)),
          pairs_(ceil_div(x.cols, 2)) {}

    bool needed() const { return int8_ || bf16_ || normed(); }
    std::size_t bytes() const {
        constexpr std::size_t scale_and_start = sizeof(float) + sizeof(std::int32_t);
        if (int8_) return rows_ * groups_ * (row_bytes() + scale_and_start + (int4_ ? sizeof(float) : 0));
        if (bf16_) return rows_ * pairs_ * sizeof(std::uint32_t);
        return normed() ? rows_ * row_floats() * sizeof(float) : 0;
    }
    /// Per-thread scratch that prepare() needs.
    std::size_t row_scratch_bytes() const {
        return normed() && (int8_ || bf16_) ? row_floats() * sizeof(float) : 0;
    }

    void prepare(std::byte* buffer, int begin, int end, std::byte* row_scratch = nullptr) const {
        for (int r = begin; r < end; ++r) {
            const std::size_t row = r;
            const float* x = x_.row_data(r);
            if (normed()) {
                auto* out = int8_ || bf16_ ? reinterpret_cast<float*>(row_scratch)
                                           : reinterpret_cast<float*>(buffer) + row * row_floats();
                row_kernels_->rms_norm(x, norm_.weight.data(), norm_.eps, x_.cols, out);
                x = out;
            }
            if (int4_) {
                kernels_.quantise_int4(x, x_.cols, q(buffer) + row * groups_ * row_bytes(),
                                       scale(buffer) + row * groups_, start(buffer) + row * groups_,
                                       sum(buffer) + row * groups_);
            } else if (int8_) {
                kernels_.quantise(x, x_.cols, q(buffer) + row * groups_ * row_bytes(),
                                  scale(buffer) + row * groups_, start(buffer) + row * groups_);
            } else if (bf16_) {
                kernels_.to_bf16(x, x_.cols, reinterpret_cast<std::uint32_t*>(buffer) + row * pairs_);
            }
        }
    }

    void point(MatmulWork& work, std::byte* buffer) const {
        if (int8_) {
            work.x_int8 = q(buffer);
            work.x_scale = scale(buffer);
            work.x_start = start(buffer);
            if (int4_) work.x_sum = sum(buffer);
        } else if (bf16_) {
            work.x_bf16 = reinterpret_cast<const std::uint32_t*>(buffer);
        } else if (normed()) {
            work.x = reinterpret_cast<const float*>(buffer);
            work.x_stride = static_cast<std::int64_t>(row_floats());
        }
    }

  private:
    bool normed() const { return row_kernels_ != nullptr; }
    std::size_t row_floats() const { return round_up(x_.cols, lanes); }
    /// Bytes of one group of one row.
    std::size_t row_bytes() const { return int4_ ? int4_block : 2 * quant_block; }
    std::int8_t* q(std::byte* buffer) const { return reinterpret_cast<std::int8_t*>(buffer); }
    float* scale(std::byte* buffer) const {
        return reinterpret_cast<float*>(buffer + rows_ * groups_ * row_bytes());
    }
    std::int32_t* start(std::byte* buffer) const {
        return reinterpret_cast<std::int32_t*>(scale(buffer) + rows_ * groups_);
    }
    float* sum(std::byte* buffer) const { return reinterpret_cast<float*>(start(buffer) + rows_ * groups_); }

    const MatmulKernels& kernels_;
    const RowKernels* row_kernels_;
    PreNorm norm_;
    bool int8_;
    bool int4_;
    bool bf16_;
    Rows<const float> x_;
    std::size_t rows_;
    std::size_t groups_;
    std::size_t pairs_;
};

}  // namespace draftscope::kernels
