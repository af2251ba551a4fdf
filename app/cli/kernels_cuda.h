#pragma once

#include <string>
#include <vector>

#include "kernels/device_bench.h"

namespace draftscope::cli {

enum class TableForm { text, json, csv };
/// Runs `draftscope kernels --backend cuda`; also times PyTorch if `python` is not "". Returns the exit code.
/// `notes` are printed with the report's.
int do_kernels_cuda(const kernels::DeviceBenchOptions& options, std::vector<std::string> notes,
                    TableForm form, const std::string& python);

}  // namespace draftscope::cli
