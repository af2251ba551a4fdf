#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "base/rng.h"
#include "kernels/backend.h"
#include "kernels/cpu/matmul/layout.h"
#if !defined(DS_GPU_ONLY)
#include "tests/support/fake_cuda/fake_gpu.h"
#endif
#include "base/numel.h"
#include "tests/support/twin_device.h"

/// Compares the ops of a device with the reference device. Parameters: "cuda", or "simt1" and "simt2" for the
/// same kernels in the SIMT emulator with different thread orders, or "cpu". "_f16": 16-bit values are fp16.
/// DS_GPU_ONLY excludes the emulator and the CPU.
namespace draftscope::testing {

class DevicePair : public ::testing::TestWithParam<std::string> {
  protected:
    void SetUp() override {
        if (GetParam() == "cpu") {
            backend_ = kernels::make_cpu_backend(2);
        } else if (GetParam().starts_with("simt")) {
            backend_ = make_host_backend();
        } else {
            auto opened = kernels::open_cuda({.arena = false});
            if (!opened.ok()) GTEST_SKIP() << opened.error().message;
            backend_ = std::move(*opened);
        }
        if (!GetParam().ends_with("_f16")) return;
        backend_->set_dtype(kernels::Float16Kind::f16);
        twin_.set_dtype(kernels::Float16Kind::f16);
    }
#if defined(DS_GPU_ONLY)
    static std::unique_ptr<kernels::Backend> make_host_backend() {
        return nullptr;
    }
#else
    std::unique_ptr<kernels::Backend> make_host_backend() const {
        return make_simt_backend(static_cast<unsigned>(GetParam()[4] - '0'));
    }
#endif
    kernels::Backend& device() {
        return *backend_;
    }
    /// The emulator is slow and runs small sizes only.
    bool too_large(std::int64_t operations) const {
        return GetParam().starts_with("simt") && operations > 250'000;
    }
    kernels::Backend& twin() {
        return twin_;
    }
    kernels::half_t to_half(float value) const {
        return twin_.dtype() == kernels::Float16Kind::f16 ? kernels::float_to_f16(value)
                                                          : kernels::to_bf16(value);
    }
    std::vector<float> widened(const std::vector<kernels::half_t>& values) const {
        std::vector<float> out;
        for (const kernels::half_t value : values)
            out.push_back(twin_.dtype() == kernels::Float16Kind::f16 ? kernels::f16_to_float(value)
                                                                     : kernels::from_bf16(value));
        return out;
    }
    /// [rows, cols] random values with the padding of a device matrix.
    std::vector<kernels::half_t> random_halves(int rows, int cols, std::uint64_t seed) const {
        const int stride = kernels::padded_columns(cols);
        Rng rng(seed);
        std::vector<kernels::half_t> values(numel(rows, stride), 0);
        for (int r = 0; r < rows; ++r)
            for (int c = 0; c < cols; ++c)
                values[numel(r, stride) + static_cast<std::size_t>(c)] =
                    to_half(static_cast<float>(rng.normal()));
        return values;
    }

    std::unique_ptr<kernels::Backend> backend_;
    TwinDevice twin_;
};

#if defined(DS_GPU_ONLY)
#define DS_HOST_KINDS
#define DS_CPU_KIND
#define DS_HOST_KINDS_OF_HALVES
#define DS_CUDA_KINDS "cuda", "cuda_f16"
#elif defined(DS_HAVE_CUDA)
#define DS_HOST_KINDS "simt1", "simt2",
#define DS_CPU_KIND "cpu",
#define DS_HOST_KINDS_OF_HALVES "simt1", "simt2", "simt2_f16",
#define DS_CUDA_KINDS "cuda", "cuda_f16"
#else
#define DS_HOST_KINDS "simt1", "simt2"
#define DS_CPU_KIND "cpu",
#define DS_HOST_KINDS_OF_HALVES "simt1", "simt2", "simt2_f16"
#define DS_CUDA_KINDS
#endif
inline auto device_kinds() {
    return ::testing::Values(DS_HOST_KINDS DS_CUDA_KINDS);
}
/// For suites whose ops the CPU has, too. They use no activations and no matrices, whose formats differ.
inline auto device_kinds_with_cpu() {
    return ::testing::Values(DS_CPU_KIND DS_HOST_KINDS DS_CUDA_KINDS);
}
/// For suites whose ops compute with 16-bit values.
inline auto device_kinds_with_dtypes() {
    return ::testing::Values(DS_HOST_KINDS_OF_HALVES DS_CUDA_KINDS);
}
inline std::string param_name(const ::testing::TestParamInfo<std::string>& instance) {
    return instance.param;
}

/// Memory with equal contents on both devices.
template <typename T>
class Both {
  public:
    Both(kernels::Backend& backend, kernels::Backend& twin, std::vector<T> values)
        : count_(values.size()), on_{&backend, &twin} {
        for (int i = 0; i < 2; ++i) {
            EXPECT_TRUE(memory_[i].reserve(*on_[i], count_ * sizeof(T)));
            on_[i]->upload(memory_[i].template as<T>(), values.data(), count_ * sizeof(T));
        }
    }
    /// Filled with a value that an op has to overwrite.
    Both(kernels::Backend& backend, kernels::Backend& twin, std::size_t count, T poison)
        : Both(backend, twin, std::vector<T>(count, poison)) {}
    T* on(bool twin) const { return memory_[twin ? 1 : 0].template as<T>(); }
    std::vector<T> read(bool twin) const {
        std::vector<T> values(count_);
        const int i = twin ? 1 : 0;
        on_[i]->download(values.data(), on(twin), count_ * sizeof(T));
        const Status done = on_[i]->synchronize();
        EXPECT_TRUE(done.ok()) << done.error().message;
        return values;
    }

  private:
    std::size_t count_;
    kernels::Backend* on_[2];
    kernels::DeviceBuffer memory_[2];
};

inline std::vector<float> normal(std::size_t count, std::uint64_t seed) {
    Rng rng(seed);
    std::vector<float> values(count);
    for (float& value : values) value = static_cast<float>(rng.normal());
    return values;
}

/// Compares the largest difference with the largest value.
inline void expect_close(const std::vector<float>& found, const std::vector<float>& expected,
                         double tolerance, const std::string& what) {
    ASSERT_EQ(found.size(), expected.size()) << what;
    double largest = 1e-30, difference = 0;
    for (std::size_t i = 0; i < found.size(); ++i) {
        ASSERT_EQ(std::isfinite(found[i]), std::isfinite(expected[i])) << what << " at " << i;
        if (!std::isfinite(expected[i])) continue;
        largest = std::max(largest, std::fabs(static_cast<double>(expected[i])));
        difference = std::max(difference, std::fabs(static_cast<double>(found[i] - expected[i])));
    }
    EXPECT_LE(difference, tolerance * largest) << what;
}

}  // namespace draftscope::testing
