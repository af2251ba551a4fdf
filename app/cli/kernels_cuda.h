#pragma once

#include "kernels/device_bench.h"

namespace draftscope::cli {

enum class TableForm { text, json, csv };
/// `draftscope kernels --backend cuda`. Returns the exit code.
int do_kernels_cuda(const kernels::DeviceBenchOptions& options, TableForm form);

}  // namespace draftscope::cli
