#include "kernels/cpu/matmul/pack.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "base/numel.h"
#include "kernels/backend/device_matrix.h"
#include "kernels/cpu/matmul/row_layout.h"
#include "kernels/packing.h"

namespace draftscope::kernels {
namespace {

constexpr int blocks_in_turn = 4;

/// Adding and subtracting 1.5 * 2^23 rounds a small float to the nearest integer, ties to even, in any vector
/// width.
float rounded(float value) {
    constexpr float shift = 12582912.0f;
    return (value + shift) - shift;
}

/// The largest absolute value: the bits of floats of one sign have the same order as the floats.
float max_abs(const float* values, int count) {
    std::int32_t largest = 0;
    for (int i = 0; i < count; ++i)
        largest = std::max(largest, std::bit_cast<std::int32_t>(values[i]) & 0x7fffffff);
    return std::bit_cast<float>(largest);
}

/// Encodes `values` with one scale per 128, as MatrixAccess::write_row() does. Scales are `lanes` apart.
void encode_int8(const float* values, int k, std::int8_t* out, std::uint16_t* scales) {
    for (int first = 0; first < k; first += quant_block) {
        const int count = std::min(quant_block, k - first);
        const std::uint16_t scale = int8_scale(max_abs(values + first, count));
        const float step = from_bf16(scale);
        scales[first / quant_block * lanes] = scale;
        if (!(step > 0.0f)) {
            std::memset(out + first, 0, count);
            continue;
        }
        for (int i = 0; i < count; ++i) {
            const float q = std::min(std::max(rounded(values[first + i] / step), -127.0f), 127.0f);
            out[first + i] = static_cast<std::int8_t>(static_cast<std::int32_t>(q));
        }
    }
    for (int i = k; i < round_up(k, int8_padding); ++i) out[i] = 0;
}

void encode_bf16(const float* values, int k, std::uint16_t* out) {
    for (int i = 0; i < k; ++i) out[i] = to_bf16(values[i]);
    if (k % 2 != 0) out[k] = 0;
}

/// Collects sixteen rows in input order, then writes them in block order.
class BlockWriter {
  public:
    BlockWriter(ThreadPool& pool, const Matrix& matrix)
        : interleave_(interleave_for(pool)),
          packing_(matrix.packing()),
          shape_(packing_, matrix.k()),
          stride_(round_up_bytes(shape_.groups * sizeof(std::uint32_t))),
          blocks_(ceil_div(matrix.n(), lanes)),
          data_(const_cast<std::byte*>(matrix.data())),
          k_(matrix.k()) {}

    int blocks() const { return blocks_; }
    std::size_t scratch_bytes() const { return lanes * stride_ + round_up_bytes(k_ * sizeof(float)); }
    std::byte* row(std::byte* scratch, int lane) const { return scratch + numel(lane, stride_); }
    /// Memory for one row of floats.
    float* values(std::byte* scratch) const { return reinterpret_cast<float*>(scratch + lanes * stride_); }
    void clear(std::byte* scratch, int lane) const { std::memset(row(scratch, lane), 0, stride_); }
    std::uint16_t* scales(int block) const {
        const std::size_t at =
            blocks_ * block_bytes(packing_.precision, k_) + block * scale_bytes(packing_, k_);
        return reinterpret_cast<std::uint16_t*>(data_ + at);
    }
    void write(std::byte* scratch, int block) const {
        const std::uint32_t* rows[lanes];
        for (int lane = 0; lane < lanes; ++lane)
            rows[lane] = reinterpret_cast<const std::uint32_t*>(row(scratch, lane));
        interleave_(rows, static_cast<int>(shape_.groups),
                    reinterpret_cast<std::uint32_t*>(data_ + block * block_bytes(packing_.precision, k_)),
                    nullptr);
    }

  private:
    static std::size_t round_up_bytes(std::size_t bytes) {
        return (bytes + RowShape::alignment - 1) / RowShape::alignment * RowShape::alignment;
    }
    Interleave16 interleave_;
    Packing packing_;
    RowShape shape_;
    std::size_t stride_;
    int blocks_;
    std::byte* data_;
    int k_;
};

/// Calls encode(row, lane, block, scratch) for the rows of each block, then writes the block. Rows from n on
/// are zeros.
template <typename Encode>
void for_each_block(ThreadPool& pool, const Matrix& matrix, const BlockWriter& writer, Encode encode) {
    const int turns = ceil_div(writer.blocks(), blocks_in_turn);
    pool.parallel(turns, [&](int turn) {
        std::byte* scratch = pool.scratch(turn % pool.threads(), writer.scratch_bytes());
        const int last = std::min((turn + 1) * blocks_in_turn, writer.blocks());
        for (int block = turn * blocks_in_turn; block < last; ++block) {
            for (int lane = 0; lane < lanes; ++lane) {
                const int row = block * lanes + lane;
                if (row < matrix.n()) {
                    encode(row, lane, block, scratch);
                    continue;
                }
                writer.clear(scratch, lane);
                const std::size_t scales =
                    scale_bytes(matrix.packing(), matrix.k()) / (lanes * sizeof(std::uint16_t));
                for (std::size_t s = 0; s < scales; ++s) writer.scales(block)[s * lanes + lane] = 0;
            }
            writer.write(scratch, block);
        }
    });
}

}  // namespace

void pack_blocks(ThreadPool& pool, Matrix& matrix, RowSource source) {
    assert(matrix.precision() != Precision::int4);
    const BlockWriter writer(pool, matrix);
    const int k = matrix.k();
    const Precision precision = matrix.precision();
    for_each_block(pool, matrix, writer, [&](int row, int lane, int block, std::byte* scratch) {
        std::byte* out = writer.row(scratch, lane);
        if (precision == Precision::f32) return source(row, reinterpret_cast<float*>(out));
        float* values = writer.values(scratch);
        source(row, values);
        if (precision == Precision::bf16) {
            encode_bf16(values, k, reinterpret_cast<std::uint16_t*>(out));
        } else {
            encode_int8(values, k, reinterpret_cast<std::int8_t*>(out), writer.scales(block) + lane);
        }
    });
}

Matrix pack_bf16(Backend& backend, int n, int k, Bf16Source stored) {
    if (!backend.is_host()) {
        return DeviceMatrixAccess::pack(backend, n, k, [&](int row, float* out) {
            const auto* bytes = static_cast<const std::byte*>(stored(row));
            for (int i = 0; i < k; ++i) {
                std::uint16_t value = 0;
                std::memcpy(&value, bytes + 2 * static_cast<std::size_t>(i), sizeof value);
                out[i] = from_bf16(value);
            }
        });
    }
    Matrix matrix = MatrixAccess::allocate({Precision::bf16, false}, n, k);
    const BlockWriter writer(backend.pool(), matrix);
    for_each_block(backend.pool(), matrix, writer, [&](int row, int lane, int, std::byte* scratch) {
        auto* out = reinterpret_cast<std::uint16_t*>(writer.row(scratch, lane));
        std::memcpy(out, stored(row), k * sizeof(std::uint16_t));
        if (k % 2 != 0) out[k] = 0;
    });
    return matrix;
}

}  // namespace draftscope::kernels
