#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>

#include "kernels/cuda/simt.h"
#include "tests/support/fake_cuda/fake_gpu.h"
#include "tests/support/fake_cuda/kernel_figures.h"

/// Launches that no multiprocessor of sm_90 can hold: the fake GPU refuses them as CUDA does.
namespace draftscope::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class LaunchLimits : public ::testing::Test {
  protected:
    void SetUp() override {
        set_fake_gpu({});
        ASSERT_EQ(cudaStreamCreateWithFlags(&stream_, 0), cudaSuccess);
    }
    void TearDown() override { EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess); }

    /// Launches a kernel that does nothing as the named one.
    cudaError_t launch(const char* file, const char* name, unsigned threads, std::size_t dynamic = 0) {
        kernels::cuda::simt::enqueue(&key_, {1}, {threads}, dynamic, stream_, {.file = file, .name = name},
                                     [] {});
        return cudaGetLastError();
    }
    cudaError_t opt_in(std::size_t bytes) {
        return fake_set_kernel_attribute(&key_, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                         static_cast<int>(bytes));
    }

    cudaStream_t stream_ = nullptr;
    int key_ = 0;  ///< its address stands for the kernel
};

TEST_F(LaunchLimits, RegistersOfABlock) {
    // 240 a thread: 8 warps have 61,440, a ninth does not fit.
    EXPECT_EQ(launch("kernels/cuda/matmul.cu", "matmul_kernel<8,4,1>", 256), cudaSuccess);
    EXPECT_EQ(launch("kernels/cuda/matmul.cu", "matmul_kernel<8,4,1>", 288), cudaErrorLaunchOutOfResources);
    EXPECT_EQ(launch("kernels/cuda/router.cu", "pick_kernel", 1024), cudaSuccess);
    EXPECT_THAT(fake_gpu_use().faults, IsEmpty());
}

TEST_F(LaunchLimits, StaticAndDynamicSharedMemoryOfABlock) {
    // 48 KiB are static.
    EXPECT_EQ(launch("head.cu", "head_kernel<4,1>", 256), cudaSuccess);
    EXPECT_EQ(launch("head.cu", "head_kernel<4,1>", 256, 16), cudaErrorInvalidConfiguration);
    // With the attribute the sum of both has another limit.
    ASSERT_EQ(opt_in(max_shared_bytes), cudaSuccess);
    EXPECT_EQ(launch("head.cu", "head_kernel<4,1>", 256, 16), cudaSuccess);
    EXPECT_EQ(launch("head.cu", "head_kernel<4,1>", 256, max_shared_bytes - plain_shared_bytes), cudaSuccess);
    EXPECT_EQ(launch("head.cu", "head_kernel<4,1>", 256, max_shared_bytes - plain_shared_bytes + 16),
              cudaErrorInvalidConfiguration);
    EXPECT_EQ(opt_in(max_shared_bytes + 1), cudaErrorInvalidValue);
}

TEST_F(LaunchLimits, DynamicSharedMemoryNeedsTheAttribute) {
    EXPECT_EQ(launch("matmul_wide.cu", "wide_kernel", 256, plain_shared_bytes), cudaSuccess);
    EXPECT_EQ(launch("matmul_wide.cu", "wide_kernel", 256, plain_shared_bytes + 16),
              cudaErrorInvalidConfiguration);
    ASSERT_EQ(opt_in(plain_shared_bytes + 16), cudaSuccess);
    EXPECT_EQ(launch("matmul_wide.cu", "wide_kernel", 256, plain_shared_bytes + 16), cudaSuccess);
    EXPECT_EQ(launch("matmul_wide.cu", "wide_kernel", 256, plain_shared_bytes + 32),
              cudaErrorInvalidConfiguration);
}

/// nvcc lets no kernel have more than 48 KiB of static shared memory, whatever its launch asks for.
TEST(KernelFigures, StaticSharedMemoryHasALimitOfItsOwn) {
    EXPECT_EQ(check_resources({.static_shared = plain_shared_bytes}, 256, 0, true), cudaSuccess);
    EXPECT_EQ(check_resources({.static_shared = plain_shared_bytes + 1}, 256, 0, true),
              cudaErrorInvalidConfiguration);
    // Warps get registers in steps of 256: 33 a thread take 1,280 of a warp, 12 warps of each part.
    EXPECT_EQ(check_resources({.registers = 33}, 48 * 32, 0, false), cudaSuccess);
    EXPECT_EQ(check_resources({.registers = 33}, 49 * 32, 0, false), cudaErrorLaunchOutOfResources);
}

/// The back end has no kernel, and no launch of one, that the figures do not cover.
TEST_F(LaunchLimits, KernelsWithoutFiguresAreFaults) {
    EXPECT_EQ(launch("head.cu", "head_kernel<3,1>", 256), cudaErrorInvalidConfiguration);
    EXPECT_EQ(launch("row_ops.cu", "cast_kernel", 512), cudaErrorInvalidConfiguration);
    EXPECT_THAT(fake_gpu_use().faults, ElementsAre(HasSubstr("head.cu launches head_kernel<3,1>"),
                                                   HasSubstr("cast_kernel with 512 threads")));
}

/// The emulator sees how much static shared memory a kernel uses, so figures that are too old are noticed.
TEST_F(LaunchLimits, FiguresCoverTheStaticSharedMemoryThatIsUsed) {
    const auto kernel = [] {
        DS_SHARED(char[40 << 10], first);
        DS_SHARED(char[9 << 10], second);
        first[threadIdx.x] = second[threadIdx.x];
    };
    EXPECT_EQ(kernels::cuda::simt::run(2, 32, 0, kernel), std::size_t{49} << 10);
    const auto launched = [&] {
        kernels::cuda::simt::enqueue(&key_, {1}, {32}, 0, stream_,
                                     {.file = "head.cu", .name = "merge_kernel"}, kernel);
        (void)cudaStreamSynchronize(stream_);
    };
    EXPECT_DEATH(launched(), "merge_kernel uses 50176 bytes of static shared memory");
}

/// Names are found in the texts of GCC, and in those of Clang, which leaves template arguments out.
TEST(KernelFigures, AreFoundByTheNamesOfCompilers) {
    const auto found = [](const char* name) {
        const auto figures = find_kernel_figures("/a/kernels/cuda/head.cu", name);
        return figures ? figures->registers : 0;
    };
    const int max_registers = kernel_figures().at("head.cu head_kernel<4,2>").registers;
    EXPECT_EQ(
        found("const char* f() [with auto* Kernel = {anonymous}::head_kernel<k::Float16Kind::bf16, 4, 2>]"),
        max_registers);
    EXPECT_EQ(
        found("const char* f() [with auto* Kernel = {anonymous}::head_kernel<k::Float16Kind::fp16, 1, 1>]"),
        kernel_figures().at("head.cu head_kernel<1,1>").registers);
    EXPECT_EQ(found("const char *f() [Kernel = &k::(anonymous namespace)::head_kernel]"), max_registers);
    EXPECT_EQ(found("const char* f() [with auto* Kernel = {anonymous}::merge_kernel]"),
              kernel_figures().at("head.cu merge_kernel").registers);
    EXPECT_EQ(found(""), 0);
}

/// Every kernel of the sources has figures, and they fit at the size at which the back end launches it. The
/// fake refuses launches of other sizes, so the sizes are those that are used.
TEST(KernelFigures, FitAtTheSizesThatAreLaunched) {
    ASSERT_THAT(kernel_figures(), ::testing::Not(IsEmpty()));
    for (const auto& [kernel, figures] : kernel_figures())
        EXPECT_EQ(
            check_resources(figures, figures.threads, figures.dynamic_shared, figures.static_shared == 0),
            cudaSuccess)
            << kernel;
    int kernels = 0;
    const std::regex definition(
        R"(__global__ void\s+(?:__launch_bounds__\((?:[^()]|\([^()]*\))*\)\s+)?(\w+)\()");
    for (const auto& file : std::filesystem::directory_iterator(DS_SOURCE_DIR "/kernels/cuda")) {
        if (file.path().extension() != ".cu") continue;
        std::stringstream text;
        text << std::ifstream(file.path()).rdbuf();
        const std::string source = text.str();
        for (std::sregex_iterator at(source.begin(), source.end(), definition), end; at != end;
             ++at, ++kernels)
            EXPECT_TRUE(find_kernel_figures(file.path().string(), (*at)[1].str()))
                << file.path() << ' ' << (*at)[1];
    }
    EXPECT_GE(kernels, 50);
}

}  // namespace
}  // namespace draftscope::testing
