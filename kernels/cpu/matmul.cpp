#include "kernels/matmul.h"

#include <cassert>

#include "kernels/cpu/activations.h"
#include "kernels/cpu/split.h"
#include "kernels/device/device_matrix.h"

namespace draftscope::kernels {

const MatmulKernels& matmul_kernels_of(Isa isa) {
#if defined(DS_KERNELS_X86)
    switch (isa) {
        case Isa::amx:
            return matmul_kernels_amx;
        case Isa::avx512_bf16:
            return matmul_kernels_bf16;
        case Isa::avx512_vnni:
            return matmul_kernels_vnni;
        case Isa::avx512:
            return matmul_kernels_avx512;
        case Isa::avx_vnni:
            return matmul_kernels_avx_vnni;
        case Isa::avx2:
            return matmul_kernels_avx2;
        case Isa::portable:
            break;
    }
#endif
    (void)isa;
    return matmul_kernels_portable;
}

namespace {

/// Runs of neighbouring numbers in chosen[begin, end): visit(first number, one past the last, place of the
/// first).
template <typename Visit>
void for_each_run(std::span<const int> chosen, int begin, int end, Visit visit) {
    for (int at = begin; at < end;) {
        const int first = chosen[static_cast<std::size_t>(at)];
        int length = 1;
        while (at + length < end && chosen[static_cast<std::size_t>(at + length)] == first + length) ++length;
        visit(first, first + length, at);
        at += length;
    }
}

/// `chosen`: blocks of outputs, rising, one after the other in y; null = all.
void run(Exec& exec, const Matrix& weights, const std::span<const int>* chosen, Rows<const float> x,
         Rows<float> y, const float* bias) {
    const MatmulKernels& kernels = matmul_kernels_of(exec.isa());
    const Packing packing = weights.packing();
    const MatmulBlocks blocks = blocks_kernel(kernels, packing);
    const int all = blocks_of(weights.n(), lanes);
    const int count = chosen == nullptr ? all : static_cast<int>(chosen->size());
    MatmulWork work;
    work.weights = weights.data();
    work.scales = reinterpret_cast<const std::uint16_t*>(
        weights.data() + static_cast<std::size_t>(all) * block_bytes(packing.precision, weights.k()));
    work.n = weights.n();
    work.k = weights.k();
    work.rows = x.rows;
    work.x = x.data;
    work.x_stride = x.stride;
    work.bias = bias;
    work.y = y.data;
    work.y_stride = y.stride;

    const Activations activations(kernels, packing.precision, x);
    std::byte* shared = nullptr;
    if (activations.needed() && x.rows > rows_prepared_twice) {
        shared = exec.shared_scratch(activations.bytes());
        split_range(exec, x.rows, std::int64_t{x.rows} * x.cols,
                    [&](int, int begin, int end) { activations.prepare(shared, begin, end); });
    }
    const std::int64_t operations = std::int64_t{x.rows} * count * lanes * weights.k();
    split_range(exec, count, operations, [&](int thread, int begin, int end) {
        MatmulWork mine = work;
        std::byte* buffer = shared;
        if (activations.needed() && buffer == nullptr) {
            buffer = exec.scratch(thread, activations.bytes());
            activations.prepare(buffer, 0, x.rows);
        }
        activations.point(mine, buffer);
        if (chosen == nullptr) return blocks(mine, begin, end);
        for_each_run(*chosen, begin, end, [&](int first, int last, int place) {
            mine.y = work.y + std::ptrdiff_t{place - first} * lanes;
            blocks(mine, first, last);
        });
    });
}

}  // namespace

void matmul(Exec& exec, const Matrix& weights, Rows<const float> x, Rows<float> y, const float* bias) {
    assert(x.cols == weights.k() && y.cols == weights.n() && x.rows == y.rows);
    if (x.rows == 0 || weights.n() == 0) return;
    if (weights.on_device()) return DeviceMatrixAccess::matmul(weights, nullptr, x, y, bias);
    run(exec, weights, nullptr, x, y, bias);
}

void matmul_blocks(Exec& exec, const Matrix& weights, std::span<const int> blocks, Rows<const float> x,
                   Rows<float> y) {
    assert(x.cols == weights.k() && y.cols == static_cast<int>(blocks.size()) * lanes && x.rows == y.rows);
    if (x.rows == 0 || blocks.empty()) return;
    if (weights.on_device()) return DeviceMatrixAccess::matmul(weights, &blocks, x, y, nullptr);
    run(exec, weights, &blocks, x, y, nullptr);
}

}  // namespace draftscope::kernels
