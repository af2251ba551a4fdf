#pragma once

#include <functional>

#include "app/jobs/kernel_report.h"
#include "base/result.h"

namespace draftscope {

struct KernelHooks {
    /// Before each op: what share is done and what comes next.
    std::function<void(double fraction, const std::string& what)> on_progress;
    std::function<bool()> cancelled;
};

/// Head, gather, layer and selection kernels on random numbers, between two probes of the memory's bandwidth.
/// Errors: impossible sizes, named; cancelled.
Result<KernelReport> measure_kernels(const KernelSettings& settings, const KernelHooks& hooks = {});

}  // namespace draftscope
