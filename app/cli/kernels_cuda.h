#pragma once

#include <string>

#include "kernels/device_bench.h"

namespace draftscope::cli {

enum class TableForm { text, json, csv };
/// Runs `draftscope kernels --backend cuda`; also times PyTorch if `python` is not "". Returns the exit code.
int do_kernels_cuda(const kernels::DeviceBenchOptions& options, TableForm form, const std::string& python);

}  // namespace draftscope::cli
