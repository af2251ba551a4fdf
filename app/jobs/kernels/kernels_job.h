#pragma once

#include <functional>

#include "app/jobs/commands/kernel_report.h"
#include "base/job_hooks.h"
#include "base/result.h"

namespace draftscope {

/// Replaces sizes that the head does not have: the default rank, and gathered rows beyond V. Returns a line
/// for each size that it changed.
std::vector<std::string> fit_kernel_sizes(KernelSettings& settings);

/// Measures the head, gather, layer and selection kernels on random data, between two probes of the memory
/// bandwidth. Errors: bad_input for an impossible size; cancelled.
Result<KernelReport> measure_kernels(const KernelSettings& settings, const JobHooks& hooks = {});

}  // namespace draftscope
