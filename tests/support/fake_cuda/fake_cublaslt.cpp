#include <cublasLt.h>

#include <bit>
#include <cstring>
#include <functional>
#include <map>
#include <utility>

#include "kernels/ops/float16.h"

/// A shared library in the place of cuBLASLt: column-major products with fp32 sums, in the order of the
/// stream. It refuses what the real one refuses: matrices of other shapes, addresses below the promised
/// alignment, a workspace of another size.

struct FakeLtHandle {};
struct FakeLtProduct {
    cublasOperation_t a = CUBLAS_OP_N, b = CUBLAS_OP_N;
    cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    const float* bias = nullptr;
};
struct FakeLtLayout {
    cudaDataType_t kind;
    std::uint64_t rows, cols;
    std::int64_t stride;
};
struct FakeLtPreference {
    std::map<int, std::uint64_t> values;
};

namespace {

/// Puts work into a stream of the fake runtime; the program sets it.
void (*enqueue)(cudaStream_t, std::function<void()>) = nullptr;

template <typename Made, typename... Values>
cublasStatus_t make(Made** out, Values... values) {
    *out = new Made{values...};
    return CUBLAS_STATUS_SUCCESS;
}

/// op(matrix) at a row and column.
float at(const void* data, const FakeLtLayout& layout, cublasOperation_t op, std::uint64_t row,
         std::uint64_t col) {
    if (op == CUBLAS_OP_T) std::swap(row, col);
    const auto place = row + col * static_cast<std::uint64_t>(layout.stride);
    if (layout.kind == CUDA_R_32F) return static_cast<const float*>(data)[place];
    const auto bits = static_cast<const std::uint16_t*>(data)[place];
    return layout.kind == CUDA_R_16F ? draftscope::kernels::f16_to_float(bits)
                                     : std::bit_cast<float>(std::uint32_t{bits} << 16);
}

bool is_aligned(const void* data, std::uint64_t bytes) {
    return reinterpret_cast<std::uintptr_t>(data) % bytes == 0;
}

/// An algorithm is the alignments of A, B, C and D and the workspace that it was chosen for.
cublasLtMatmulAlgo_t algorithm_of(const FakeLtPreference& preference) {
    cublasLtMatmulAlgo_t algorithm{};
    for (const auto& [what, value] : preference.values)
        algorithm.data[what == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES ? 4 : what - 5] = value;
    return algorithm;
}

}  // namespace

extern "C" void fake_cublaslt_set_queue(void (*queue)(cudaStream_t, std::function<void()>)) {
    enqueue = queue;
}

std::size_t cublasLtGetVersion() {
    return CUBLAS_VER_MAJOR * 10000 + 100;
}
cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
    return make(handle);
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
    delete handle;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* product, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
    if (compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
    return make(product);
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t product) {
    delete product;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t product,
                                              cublasLtMatmulDescAttributes_t what, const void* value,
                                              std::size_t bytes) {
    const auto set = [&](auto& to) {
        if (bytes != sizeof to) return CUBLAS_STATUS_INVALID_VALUE;
        std::memcpy(&to, value, bytes);
        return CUBLAS_STATUS_SUCCESS;
    };
    switch (what) {
        case CUBLASLT_MATMUL_DESC_TRANSA:
            return set(product->a);
        case CUBLASLT_MATMUL_DESC_TRANSB:
            return set(product->b);
        case CUBLASLT_MATMUL_DESC_EPILOGUE:
            return set(product->epilogue);
        case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
            return set(product->bias);
    }
    return CUBLAS_STATUS_INVALID_VALUE;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType_t kind,
                                          std::uint64_t rows, std::uint64_t cols, std::int64_t stride) {
    if (stride < static_cast<std::int64_t>(rows)) return CUBLAS_STATUS_INVALID_VALUE;
    return make(layout, kind, rows, cols, stride);
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
    delete layout;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
    return make(preference);
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
    delete preference;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t what,
                                                    const void* value, std::size_t bytes) {
    const bool workspace = what == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
    if (bytes != (workspace ? sizeof(std::size_t) : sizeof(std::uint32_t)))
        return CUBLAS_STATUS_INVALID_VALUE;
    std::uint64_t& to = preference->values[what];
    to = 0;
    std::memcpy(&to, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t product,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t* results, int* found) {
    *found = 0;
    const bool turned = product->a == CUBLAS_OP_T, turned_b = product->b == CUBLAS_OP_T;
    const std::uint64_t m = turned ? a->cols : a->rows, k = turned ? a->rows : a->cols;
    const std::uint64_t k_b = turned_b ? b->cols : b->rows, n = turned_b ? b->rows : b->cols;
    if (wanted < 1 || k != k_b || c->rows != m || d->rows != m || c->cols != n || d->cols != n)
        return CUBLAS_STATUS_INVALID_VALUE;
    results->algo = algorithm_of(*preference);
    // Tensor cores need operands at multiples of 16 bytes.
    results->state = results->algo.data[0] < 16 || results->algo.data[1] < 16 || results->algo.data[3] < 4
                         ? CUBLAS_STATUS_NOT_SUPPORTED
                         : CUBLAS_STATUS_SUCCESS;
    *found = 1;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t product, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                              std::size_t workspace_bytes, cudaStream_t stream) {
    if (enqueue == nullptr || workspace == nullptr || workspace_bytes < algorithm->data[4] ||
        !is_aligned(a, algorithm->data[0]) || !is_aligned(b, algorithm->data[1]) ||
        !is_aligned(c, algorithm->data[2]) || !is_aligned(d, algorithm->data[3]))
        return CUBLAS_STATUS_INVALID_VALUE;
    // The call reads the descriptions and the factors; the stream reads the matrices.
    const float scale = *static_cast<const float*>(alpha), before = *static_cast<const float*>(beta);
    enqueue(stream, [=, op = *product, la = *a_layout, lb = *b_layout, lc = *c_layout, ld = *d_layout] {
        const std::uint64_t k = op.a == CUBLAS_OP_T ? la.rows : la.cols;
        for (std::uint64_t col = 0; col < ld.cols; ++col)
            for (std::uint64_t row = 0; row < ld.rows; ++row) {
                float sum = 0;
                for (std::uint64_t i = 0; i < k; ++i)
                    sum += at(a, la, op.a, row, i) * at(b, lb, op.b, i, col);
                float value = scale * sum;
                if (before != 0) value += before * at(c, lc, CUBLAS_OP_N, row, col);
                if (op.epilogue == CUBLASLT_EPILOGUE_BIAS) value += op.bias[row];
                static_cast<float*>(d)[row + col * static_cast<std::uint64_t>(ld.stride)] = value;
            }
    });
    return CUBLAS_STATUS_SUCCESS;
}
