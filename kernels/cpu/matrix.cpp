#include "kernels/matrix.h"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/numel.h"
#include "kernels/backend/device_matrix.h"
#include "kernels/cpu/matmul/layout.h"
#include "kernels/cpu/matmul/pack.h"
#include "kernels/cpu/weight_memory.h"

namespace draftscope::kernels {
namespace {

struct RowAddress {
    std::byte* block;       ///< first byte of the row's block of 16 outputs
    std::uint16_t* scales;  ///< first scale of that block
    int lane;
};

RowAddress locate_row(std::byte* data, Packing packing, int n, int k, int row) {
    const Precision precision = packing.precision;
    const std::size_t block = row / lanes;
    const std::size_t blocks = ceil_div(n, lanes);
    std::byte* scales = data + blocks * block_bytes(precision, k) + block * scale_bytes(packing, k);
    return {data + block * block_bytes(precision, k), reinterpret_cast<std::uint16_t*>(scales), row % lanes};
}

/// Position of input `i` of lane `lane` in a block, in elements.
std::size_t element(Precision precision, int i, int lane) {
    const int group = precision == Precision::f32 ? 1 : precision == Precision::bf16 ? 2 : 4;
    return (numel(i / group, lanes) + lane) * group + i % group;
}

void write_int8_row(const RowAddress& address, std::span<const float> values) {
    auto* out = reinterpret_cast<std::int8_t*>(address.block);
    const int k = static_cast<int>(values.size());
    for (int b = 0; b < ceil_div(k, quant_block); ++b) {
        const int first = b * quant_block;
        const int last = std::min(first + quant_block, k);
        float largest = 0.0f;
        for (int i = first; i < last; ++i) {
            largest = std::max(largest, std::fabs(values[i]));
        }
        const std::uint16_t scale = int8_scale(largest);
        const float step = from_bf16(scale);
        address.scales[b * lanes + address.lane] = scale;
        for (int i = first; i < std::min(first + quant_block, round_up(k, int8_padding)); ++i) {
            const float w = i < last ? values[i] : 0.0f;
            const float q = step > 0.0f ? std::clamp(std::nearbyint(w / step), -127.0f, 127.0f) : 0.0f;
            out[element(Precision::int8, i, address.lane)] = static_cast<std::int8_t>(q);
        }
    }
}

/// Position of an int4 input: its byte, and the shift of its nibble.
struct NibbleAddress {
    std::size_t byte;
    int shift;
};
NibbleAddress nibble(int i, int lane) {
    const std::size_t group = i / 8;
    return {(group * lanes + lane) * 4 + i % 4, i % 8 < 4 ? 0 : 4};
}

/// Stores `row` and its scales, with inputs padded with zeros.
void store_int4_row(const RowAddress& address, int k, bool symmetric, const Int4Row& row) {
    auto* out = reinterpret_cast<std::uint8_t*>(address.block);
    for (int i = 0; i < round_up(k, int4_block); i += 8) {
        for (int b = 0; b < 4; ++b) {
            const auto q = [&](int at) { return at < k ? static_cast<unsigned>(row.q[at]) : 0u; };
            out[nibble(i + b, address.lane).byte] = static_cast<std::uint8_t>(q(i + b) | q(i + b + 4) << 4);
        }
    }
    const int scale_rows = symmetric ? 1 : 2;
    for (int b = 0; b < ceil_div(k, int4_block); ++b) {
        std::uint16_t* group_scales = address.scales + b * scale_rows * lanes + address.lane;
        group_scales[0] = row.scales[b];
        if (!symmetric) group_scales[lanes] = row.minimums[b];
    }
}

/// Quantises between the smallest and the largest of 32 weights; zero is always among the values.
void quantise_int4(std::span<const float> values, const Int4Row& row) {
    const int k = static_cast<int>(values.size());
    for (int b = 0; b < ceil_div(k, int4_block); ++b) {
        const int first = b * int4_block, last = std::min(first + int4_block, k);
        float least = 0.0f, largest = 0.0f;
        for (int i = first; i < last; ++i) {
            least = std::min(least, values[i]);
            largest = std::max(largest, values[i]);
        }
        const std::uint16_t minimum = to_clamped_f16(least),
                            scale = to_clamped_f16((largest - f16_to_float(minimum)) / 15.0f);
        const float step = f16_to_float(scale), base = f16_to_float(minimum);
        row.scales[b] = scale;
        row.minimums[b] = minimum;
        for (int i = first; i < last; ++i) {
            const float q = step > 0.0f ? std::nearbyint((values[i] - base) / step) : 0.0f;
            row.q[i] = static_cast<std::uint8_t>(std::clamp(q, 0.0f, 15.0f));
        }
    }
}

bool is_symmetric(const Int4Row& row) {
    for (std::size_t b = 0; b < row.scales.size(); ++b) {
        if (f16_to_float(row.minimums[b]) != -int4_offset * f16_to_float(row.scales[b])) return false;
    }
    return true;
}

/// Memory for one row in four bits.
class Int4Buffer {
  public:
    explicit Int4Buffer(int k) : q_(k), scales_(ceil_div(k, int4_block)), minimums_(scales_.size()) {}
    Int4Row row() { return {q_, scales_, minimums_}; }

  private:
    std::vector<std::uint8_t> q_;
    std::vector<std::uint16_t> scales_, minimums_;
};

/// Calls write(first, last) on every thread for its rows in whole blocks; rows from n on are padding.
template <typename Write>
void for_each_row(ThreadPool& pool, int n, Write write) {
    const int blocks = ceil_div(n, lanes);
    pool.parallel(pool.threads(), [&](int part) {
        const int first = static_cast<int>(static_cast<std::int64_t>(blocks) * part / pool.threads());
        const int last = static_cast<int>(static_cast<std::int64_t>(blocks) * (part + 1) / pool.threads());
        write(first * lanes, last * lanes);
    });
}

}  // namespace

std::string_view to_text(Precision precision) {
    switch (precision) {
        case Precision::f32:
            return "f32";
        case Precision::bf16:
            return "bf16";
        case Precision::int8:
            return "int8";
        case Precision::int4:
            return "int4";
    }
    return "unknown";
}

std::optional<Precision> precision_from(std::string_view text) {
    for (const Precision precision : {Precision::f32, Precision::bf16, Precision::int8, Precision::int4}) {
        if (text == to_text(precision)) return precision;
    }
    return std::nullopt;
}

double bytes_per_weight(Precision precision) {
    switch (precision) {
        case Precision::f32:
            return 4;
        case Precision::bf16:
            return 2;
        case Precision::int8:
            return 1 + 2.0 / quant_block;
        case Precision::int4:
            return 0.5 + 4.0 / int4_block;
    }
    return 0;
}

void Matrix::Free::operator()(std::byte* p) const {
    free_weights(p);
}

Matrix MatrixAccess::allocate(Packing packing, int n, int k) {
    assert(n >= 0 && k >= 0);
    Matrix matrix;
    matrix.n_ = n;
    matrix.k_ = k;
    matrix.packing_ = packing;
    matrix.bytes_ = ceil_div(n, lanes) * (block_bytes(packing.precision, k) + scale_bytes(packing, k));
    matrix.data_.reset(allocate_weights(matrix.bytes_ + tile_bytes));
    std::memset(matrix.data_.get() + matrix.bytes_, 0, tile_bytes);
    return matrix;
}

void MatrixAccess::write_row(Matrix& matrix, int row, std::span<const float> values) {
    const Precision precision = matrix.precision();
    const RowAddress address = locate_row(matrix.data_.get(), matrix.packing_, matrix.n_, matrix.k_, row);
    const int k = static_cast<int>(values.size());
    if (precision == Precision::int8) return write_int8_row(address, values);
    if (precision == Precision::int4) {
        Int4Buffer buffer(k);
        quantise_int4(values, buffer.row());
        return write_int4_row(matrix, row, buffer.row());
    }
    for (int i = 0; i < k; ++i) {
        const float w = values[i];
        const std::size_t at = element(precision, i, address.lane);
        if (precision == Precision::f32) {
            reinterpret_cast<float*>(address.block)[at] = w;
        } else {
            reinterpret_cast<std::uint16_t*>(address.block)[at] = to_bf16(w);
        }
    }
    if (precision == Precision::bf16 && k % 2 != 0) {
        reinterpret_cast<std::uint16_t*>(address.block)[element(precision, k, address.lane)] = 0;
    }
}

void MatrixAccess::write_int4_row(Matrix& matrix, int row, const Int4Row& values) {
    const RowAddress address = locate_row(matrix.data_.get(), matrix.packing_, matrix.n_, matrix.k_, row);
    store_int4_row(address, matrix.k_, matrix.packing_.symmetric, values);
}

void MatrixAccess::copy_row(const Matrix& from, int from_row, Matrix& to, int to_row) {
    const RowAddress source = locate_row(from.data_.get(), from.packing_, from.n_, from.k_, from_row);
    const RowAddress target = locate_row(to.data_.get(), to.packing_, to.n_, to.k_, to_row);
    // Whatever the precision, one group of inputs of one output is 4 bytes.
    const std::size_t groups = block_bytes(from.precision(), from.k_) / (lanes * sizeof(std::uint32_t));
    const auto* in = reinterpret_cast<const std::uint32_t*>(source.block) + source.lane;
    auto* out = reinterpret_cast<std::uint32_t*>(target.block) + target.lane;
    for (std::size_t g = 0; g < groups; ++g) out[g * lanes] = in[g * lanes];
    const std::size_t scales = scale_bytes(from.packing_, from.k_) / (lanes * sizeof(std::uint16_t));
    for (std::size_t b = 0; b < scales; ++b)
        target.scales[b * lanes + target.lane] = source.scales[b * lanes + source.lane];
}

Matrix Matrix::pack(Backend& backend, Precision precision, int n, int k, RowSource source) {
    if (!backend.is_host()) return DeviceMatrixAccess::pack(backend, n, k, source);
    return pack(backend.pool(), precision, n, k, source);
}

Matrix Matrix::pack(ThreadPool& pool, Precision precision, int n, int k, RowSource source) {
    if (precision == Precision::int4)
        return pack_int4(pool, n, k, source, [](int, const Int4Row&) { return false; });
    Matrix matrix = MatrixAccess::allocate({precision, false}, n, k);
    pack_blocks(pool, matrix, source);
    return matrix;
}

namespace {

/// Returns false if `symmetric` and a row is not; the contents of `matrix` are undefined then.
bool fill_int4(ThreadPool& pool, Matrix& matrix, RowSource source, Int4Source stored) {
    const int n = matrix.n(), k = matrix.k();
    const bool symmetric = matrix.packing().symmetric;
    std::atomic<bool> fits{true};
    for_each_row(pool, n, [&](int first, int last) {
        std::vector<float> values(k);
        Int4Buffer buffer(k);
        for (int r = first; r < last && fits.load(std::memory_order_relaxed); ++r) {
            if (r >= n || !stored(r, buffer.row())) {
                std::fill(values.begin(), values.end(), 0.0f);
                if (r < n) source(r, values.data());
                quantise_int4(values, buffer.row());
            }
            if (symmetric && !is_symmetric(buffer.row())) fits.store(false, std::memory_order_relaxed);
            MatrixAccess::write_int4_row(matrix, r, buffer.row());
        }
    });
    return fits;
}

}  // namespace

Matrix pack_int4(ThreadPool& pool, int n, int k, RowSource source, Int4Source stored) {
    Int4Buffer first(k);
    if (n > 0 && stored(0, first.row()) && is_symmetric(first.row())) {
        Matrix matrix = MatrixAccess::allocate({Precision::int4, true}, n, k);
        if (fill_int4(pool, matrix, source, stored)) return matrix;
    }
    Matrix matrix = MatrixAccess::allocate({Precision::int4, false}, n, k);
    fill_int4(pool, matrix, source, stored);
    return matrix;
}

Matrix Matrix::gather_rows(ThreadPool& pool, std::span<const TokenId> ids) const {
    if (on_device()) return DeviceMatrixAccess::gather_rows(*this, ids);
    const int n = static_cast<int>(ids.size());
    Matrix matrix = MatrixAccess::allocate(packing_, n, k_);
    const std::vector<float> zeros(k_, 0.0f);
    for_each_row(pool, n, [&](int first, int last) {
        for (int r = first; r < last; ++r) {
            if (r < n) {
                assert(ids[r] >= 0 && ids[r] < n_);
                MatrixAccess::copy_row(*this, ids[r], matrix, r);
            } else {
                MatrixAccess::write_row(matrix, r, zeros);
            }
        }
    });
    return matrix;
}

void Matrix::unpack_row(int row, std::span<float> out) const {
    assert(row >= 0 && row < n_ && static_cast<int>(out.size()) == k_);
    if (on_device()) return DeviceMatrixAccess::unpack_row(*this, row, out);
    const RowAddress address = locate_row(data_.get(), packing_, n_, k_, row);
    const Precision precision = packing_.precision;
    for (int i = 0; i < k_; ++i) {
        if (precision == Precision::int4) {
            const NibbleAddress at = nibble(i, address.lane);
            const int q = std::to_integer<int>(address.block[at.byte]) >> at.shift & 15;
            const int scale_rows = packing_.symmetric ? 1 : 2;
            const std::uint16_t* group_scales =
                address.scales + i / int4_block * scale_rows * lanes + address.lane;
            const float scale = f16_to_float(group_scales[0]);
            out[i] = packing_.symmetric ? static_cast<float>(q - int4_offset) * scale
                                        : static_cast<float>(q) * scale + f16_to_float(group_scales[lanes]);
            continue;
        }
        const std::size_t at = element(precision, i, address.lane);
        float& value = out[i];
        if (precision == Precision::f32) {
            value = reinterpret_cast<const float*>(address.block)[at];
        } else if (precision == Precision::bf16) {
            value = from_bf16(reinterpret_cast<const std::uint16_t*>(address.block)[at]);
        } else {
            const auto q = reinterpret_cast<const std::int8_t*>(address.block)[at];
            value = static_cast<float>(q) * from_bf16(address.scales[i / quant_block * lanes + address.lane]);
        }
    }
}

}  // namespace draftscope::kernels
