#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>

/// What a block of each kernel needs of a multiprocessor, by tools/sass_budgets.json. These are the figures
/// of ptxas for sm_90; the emulator itself knows no registers.
namespace draftscope::testing {

/// Shared memory of a block, in bytes: without and with cudaFuncAttributeMaxDynamicSharedMemorySize.
inline constexpr std::size_t plain_shared_bytes = 48 << 10, max_shared_bytes = 227 << 10;

struct KernelFigures {
    int threads = 0;  ///< of a block, as the back end launches it
    int registers = 0;
    std::size_t static_shared = 0, dynamic_shared = 0;  ///< bytes; the latter for heads of 128
};

/// Returns the figures of all kernels, by file and kernel: "head.cu head_kernel<4,1>". Empty = a machine
/// without the sources.
const std::map<std::string, KernelFigures>& kernel_figures();

/// Returns the figures of the kernel that `name` contains, a result of simt::kernel_name(). A name without
/// template arguments (Clang) stands for the instance that needs the most.
std::optional<KernelFigures> find_kernel_figures(std::string_view path, std::string_view name);

/// Returns what a launch of `threads` a block gets, with `dynamic` bytes of dynamic shared memory. Errors
/// follow the descriptions of cudaError_t. `opted_in` = the kernel has the attribute above.
cudaError_t check_resources(const KernelFigures& figures, int threads, std::size_t dynamic, bool opted_in);

}  // namespace draftscope::testing
