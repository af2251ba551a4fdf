#include "kernels/cuda/library_product.h"

#include <cublasLt.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "base/python_wheels.h"

namespace draftscope::kernels::cuda {
namespace {

/// The size recommended for cuBLASLt on sm_90; our default, not measured.
constexpr std::size_t workspace_bytes = std::size_t{32} << 20;

/// The library's functions, with the types of its header.
struct Library {
    void* handle = nullptr;
    std::string version;
    decltype(&cublasLtCreate) create = nullptr;
    decltype(&cublasLtDestroy) destroy = nullptr;
    decltype(&cublasLtGetVersion) get_version = nullptr;
    decltype(&cublasLtMatmul) matmul = nullptr;
    decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic = nullptr;
    decltype(&cublasLtMatmulDescCreate) desc_create = nullptr;
    decltype(&cublasLtMatmulDescDestroy) desc_destroy = nullptr;
    decltype(&cublasLtMatmulDescSetAttribute) desc_set = nullptr;
    decltype(&cublasLtMatrixLayoutCreate) layout_create = nullptr;
    decltype(&cublasLtMatrixLayoutDestroy) layout_destroy = nullptr;
    decltype(&cublasLtMatmulPreferenceCreate) preference_create = nullptr;
    decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy = nullptr;
    decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set = nullptr;

    template <typename Function>
    bool find(Function& to, const char* name) {
        to = reinterpret_cast<Function>(dlsym(handle, name));
        return to != nullptr;
    }
    bool find_all() {
        return find(create, "cublasLtCreate") && find(destroy, "cublasLtDestroy") &&
               find(get_version, "cublasLtGetVersion") && find(matmul, "cublasLtMatmul") &&
               find(heuristic, "cublasLtMatmulAlgoGetHeuristic") &&
               find(desc_create, "cublasLtMatmulDescCreate") &&
               find(desc_destroy, "cublasLtMatmulDescDestroy") &&
               find(desc_set, "cublasLtMatmulDescSetAttribute") &&
               find(layout_create, "cublasLtMatrixLayoutCreate") &&
               find(layout_destroy, "cublasLtMatrixLayoutDestroy") &&
               find(preference_create, "cublasLtMatmulPreferenceCreate") &&
               find(preference_destroy, "cublasLtMatmulPreferenceDestroy") &&
               find(preference_set, "cublasLtMatmulPreferenceSetAttribute");
    }
};

/// Stays loaded until the process ends. Structures match only versions with the header's major version.
const Library& the_library() {
    static const Library library = [] {
        Library found;
        const int major = CUBLAS_VER_MAJOR;
        const std::string file = fmt::format("libcublasLt.so.{}", major);
        std::vector<std::string> names = wheel_libraries(file);
        names.insert(names.begin(), {file, "/usr/local/cuda/lib64/" + file});
        for (const std::string& name : names) {
            found.handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
            if (found.handle != nullptr) break;
        }
        if (found.handle == nullptr) return found;
        if (!found.find_all() || found.get_version() / 10000 != static_cast<std::size_t>(major)) {
            dlclose(found.handle);
            return Library{};
        }
        const std::size_t number = found.get_version();
        found.version = fmt::format("cuBLASLt {}.{}.{}", number / 10000, number / 100 % 100, number % 100);
        return found;
    }();
    return library;
}

/// The alignment of an address, up to the largest that the library uses.
std::uint32_t address_alignment(const void* address) {
    const auto bits = reinterpret_cast<std::uintptr_t>(address) | 256;
    return static_cast<std::uint32_t>(bits & (~bits + 1));
}

class LibraryProductImpl final : public LibraryProduct {
  public:
    explicit LibraryProductImpl(const Library& library) : library_(library) {}
    ~LibraryProductImpl() override {
        for (auto& [key, plan] : plans_) drop(plan);
        if (handle_ != nullptr) library_.destroy(handle_);
        if (workspace_ != nullptr) cudaFree(workspace_);
    }
    bool begin() {
        if (library_.create(&handle_) != CUBLAS_STATUS_SUCCESS) return false;
        if (cudaMalloc(&workspace_, workspace_bytes) == cudaSuccess) return true;
        (void)cudaGetLastError();
        return false;
    }
    const std::string& version() const override { return library_.version; }

    bool run(const MatmulOp& op, Float16Kind dtype, cudaStream_t stream) override {
        const Key key{op.weights.n,
                      op.weights.stride,
                      op.rows,
                      op.y_stride,
                      op.accumulate,
                      op.bias != nullptr,
                      address_alignment(op.weights.data),
                      address_alignment(op.x.halves),
                      address_alignment(op.y),
                      dtype};
        auto found = plans_.find(key);
        if (found == plans_.end()) {
            // A run has few shapes. A server with prompts of all lengths rebuilds the cache occasionally.
            if (plans_.size() >= max_plans) {
                for (auto& [old, plan] : plans_) drop(plan);
                plans_.clear();
            }
            found = plans_.emplace(key, make(op, dtype)).first;
        }
        const Plan& plan = found->second;
        if (!plan.usable) return false;
        if (op.bias != nullptr && library_.desc_set(plan.product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &op.bias,
                                                    sizeof op.bias) != CUBLAS_STATUS_SUCCESS)
            return false;
        const float one = 1.0f, before = op.accumulate ? 1.0f : 0.0f;
        return library_.matmul(handle_, plan.product, &one, op.weights.data, plan.weights, op.x.halves,
                               plan.rows, &before, op.y, plan.out, op.y, plan.out, &plan.algorithm,
                               workspace_, workspace_bytes, stream) == CUBLAS_STATUS_SUCCESS;
    }

  private:
    using Key = std::tuple<int, int, int, std::int64_t, bool, bool, std::uint32_t, std::uint32_t,
                           std::uint32_t, Float16Kind>;
    static constexpr std::size_t max_plans = 1024;
    struct Plan {
        cublasLtMatmulDesc_t product = nullptr;
        cublasLtMatrixLayout_t weights = nullptr, rows = nullptr, out = nullptr;
        cublasLtMatmulAlgo_t algorithm{};
        bool usable = false;
    };

    /// The library is column-major: our row-major [n, k] is its k x n, transposed, and y is n x rows.
    Plan make(const MatmulOp& op, Float16Kind dtype) {
        Plan plan;
        const cudaDataType_t kind = dtype == Float16Kind::f16 ? CUDA_R_16F : CUDA_R_16BF;
        const auto n = static_cast<std::uint64_t>(op.weights.n), rows = static_cast<std::uint64_t>(op.rows);
        const auto k = static_cast<std::uint64_t>(op.weights.stride);  // zeros after the last column
        const auto stride = static_cast<std::int64_t>(op.weights.stride);
        const cublasOperation_t transposed = CUBLAS_OP_T;
        const cublasLtEpilogue_t with_bias = CUBLASLT_EPILOGUE_BIAS;
        const auto ok = [](cublasStatus_t status) { return status == CUBLAS_STATUS_SUCCESS; };
        const bool described =
            ok(library_.desc_create(&plan.product, CUBLAS_COMPUTE_32F, CUDA_R_32F)) &&
            ok(library_.desc_set(plan.product, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                 sizeof transposed)) &&
            (op.bias == nullptr || (ok(library_.desc_set(plan.product, CUBLASLT_MATMUL_DESC_EPILOGUE,
                                                         &with_bias, sizeof with_bias)) &&
                                    ok(library_.desc_set(plan.product, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                                         &op.bias, sizeof op.bias)))) &&
            ok(library_.layout_create(&plan.weights, kind, k, n, stride)) &&
            ok(library_.layout_create(&plan.rows, kind, k, rows, stride)) &&
            ok(library_.layout_create(&plan.out, CUDA_R_32F, n, rows, op.y_stride));
        plan.usable = described && choose(plan, op);
        return plan;
    }
    bool choose(Plan& plan, const MatmulOp& op) const {
        cublasLtMatmulPreference_t preference = nullptr;
        if (library_.preference_create(&preference) != CUBLAS_STATUS_SUCCESS) return false;
        const auto set = [&](cublasLtMatmulPreferenceAttributes_t what, auto value) {
            return library_.preference_set(preference, what, &value, sizeof value) == CUBLAS_STATUS_SUCCESS;
        };
        const std::uint32_t out = address_alignment(op.y);
        int found = 0;
        cublasLtMatmulHeuristicResult_t best{};
        const bool chosen =
            set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace_bytes) &&
            set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, address_alignment(op.weights.data)) &&
            set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, address_alignment(op.x.halves)) &&
            set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, out) &&
            set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, out) &&
            library_.heuristic(handle_, plan.product, plan.weights, plan.rows, plan.out, plan.out, preference,
                               1, &best, &found) == CUBLAS_STATUS_SUCCESS &&
            found > 0 && best.state == CUBLAS_STATUS_SUCCESS;
        library_.preference_destroy(preference);
        if (chosen) plan.algorithm = best.algo;
        return chosen;
    }
    void drop(Plan& plan) const {
        for (const cublasLtMatrixLayout_t layout : {plan.weights, plan.rows, plan.out})
            if (layout != nullptr) library_.layout_destroy(layout);
        if (plan.product != nullptr) library_.desc_destroy(plan.product);
    }

    const Library& library_;
    cublasLtHandle_t handle_ = nullptr;
    void* workspace_ = nullptr;
    std::map<Key, Plan> plans_;
};

}  // namespace

Result<std::unique_ptr<LibraryProduct>> LibraryProduct::open() {
    const Library& library = the_library();
    if (library.handle == nullptr)
        return bad_input(
            "libcublasLt.so.{} cannot be loaded; install CUDA {}'s libraries or add their folder to "
            "LD_LIBRARY_PATH, or use --numerics exact, which does not need it",
            CUBLAS_VER_MAJOR, CUBLAS_VER_MAJOR);
    auto made = std::make_unique<LibraryProductImpl>(library);
    if (!made->begin())
        return failed("cuBLASLt does not start: creating its handle or allocating its workspace failed");
    return std::unique_ptr<LibraryProduct>(std::move(made));
}

}  // namespace draftscope::kernels::cuda
