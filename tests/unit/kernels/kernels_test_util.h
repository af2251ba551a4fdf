#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/numel.h"
#include "base/rng.h"
#include "base/spans.h"
#include "kernels/matrix.h"
#include "kernels/packing.h"

namespace draftscope::kernels {

inline constexpr double f32_epsilon =
    1.0 / (1 << 24);                             ///< largest relative rounding error of one f32 operation
inline constexpr double f32_smallest = 1.2e-38;  ///< what flushing one denormal can lose

/// Every instruction set this machine can run; each has its own code path.
inline std::vector<Isa> isas() {
    std::vector<Isa> all;
    for (const Isa isa : {Isa::portable, Isa::avx2, Isa::avx_vnni, Isa::avx512, Isa::avx512_vnni,
                          Isa::avx512_bf16, Isa::amx}) {
        if (can_run(isa)) all.push_back(isa);
    }
    return all;
}

inline std::string name_of(Isa isa) {
    return std::string(to_text(isa));
}
inline std::string name_of(Precision precision) {
    return std::string(to_text(precision));
}
inline std::string name_of(Packing packing) {
    return name_of(packing.precision) + (packing.symmetric ? " symmetric" : "");
}

/// Every packing of matrices.
inline constexpr Packing packings[] = {{Precision::f32, false},
                                       {Precision::bf16, false},
                                       {Precision::int8, false},
                                       {Precision::int4, false},
                                       {Precision::int4, true}};

/// A dense row-major table that owns its numbers.
struct Table {
    Table(int rows_in, int cols_in) : rows(rows_in), cols(cols_in), data(numel(rows_in, cols_in)) {}
    float* row(int r) { return data.data() + numel(r, cols); }
    const float* row(int r) const { return data.data() + numel(r, cols); }
    float at(int r, int c) const { return row(r)[c]; }
    Rows<float> view() { return Rows<float>(data.data(), rows, cols); }
    Rows<const float> view() const { return Rows<const float>(data.data(), rows, cols); }

    int rows;
    int cols;
    std::vector<float> data;
};

/// Normal numbers with values that break kernels: outliers of 1000, exact zeros, denormals, whole rows and
/// blocks of zeros.
inline Table hard_table(int rows, int cols, std::uint64_t seed) {
    Table table(rows, cols);
    Rng rng(seed);
    for (int r = 0; r < rows; ++r) {
        const bool zero_row = rng.below(16) == 0;
        for (int c = 0; c < cols; ++c) {
            float value = static_cast<float>(rng.normal());
            switch (rng.below(40)) {
                case 0:
                    value *= 1000.0f;
                    break;
                case 1:
                    value = 0.0f;
                    break;
                case 2:
                    value = 1e-40f;
                    break;
                default:
                    break;
            }
            if (zero_row || (c / 32) % 7 == 5) value = 0.0f;
            table.row(r)[c] = value;
        }
    }
    return table;
}

inline bool same_bits(const float* a, const float* b, int count) {
    return std::memcmp(a, b, static_cast<std::size_t>(count) * sizeof(float)) == 0;
}

inline Matrix pack_table(ThreadPool& exec, Precision precision, const Table& table) {
    return Matrix::pack(exec, precision, table.rows, table.cols, [&](int row, float* out) {
        std::memcpy(out, table.row(row), static_cast<std::size_t>(table.cols) * sizeof(float));
    });
}

/// Packs like pack_table(). Symmetric packings use rows as Q4_0 stores them: blocks of 32 weights in steps
/// from -8 to 7, scaled so that the largest is at -8.
inline Matrix pack_as(ThreadPool& exec, Packing packing, const Table& table) {
    if (!packing.symmetric) return pack_table(exec, packing.precision, table);
    const auto floats = [](int, float*) { ADD_FAILURE() << "rows in four bits are taken as they are"; };
    Matrix matrix = pack_int4(exec, table.rows, table.cols, floats, [&](int row, const Int4Row& out) {
        for (int first = 0; first < table.cols; first += 32) {
            const int last = std::min(first + 32, table.cols);
            float largest = 0.0f;
            for (int c = first; c < last; ++c)
                if (std::fabs(table.at(row, c)) > std::fabs(largest)) largest = table.at(row, c);
            const std::uint16_t scale = to_clamped_f16(-largest / 8.0f);
            const float step = -largest / 8.0f;
            out.scales[first / 32] = scale;
            // Raises the exponent by three and flips the sign; scales below the normal range become zero.
            const bool normal = (scale & 0x7fffu) >= 0x400u;
            if (!normal) out.scales[first / 32] = 0;
            out.minimums[first / 32] =
                normal ? static_cast<std::uint16_t>((scale ^ 0x8000u) + 0xc00u) : std::uint16_t{0};
            for (int c = first; c < last; ++c) {
                const float q = normal ? std::nearbyint(table.at(row, c) / step) + 8.0f : 8.0f;
                out.q[c] = static_cast<std::uint8_t>(std::fmin(std::fmax(q, 0.0f), 15.0f));
            }
        }
        return true;
    });
    EXPECT_TRUE(matrix.packing().symmetric);
    return matrix;
}

}  // namespace draftscope::kernels
