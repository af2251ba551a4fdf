#pragma once

#include <functional>

#include "app/jobs/commands/kernel_report.h"
#include "base/result.h"

namespace draftscope {

struct KernelHooks {
    /// Called before each op with the fraction done and the op's name.
    std::function<void(double fraction, const std::string& what)> on_progress;
    std::function<bool()> cancelled;
};

/// Measures the head, gather, layer and selection kernels on random data, between two probes of the memory
/// bandwidth. Errors: bad_input for an impossible size; cancelled.
Result<KernelReport> measure_kernels(const KernelSettings& settings, const KernelHooks& hooks = {});

}  // namespace draftscope
