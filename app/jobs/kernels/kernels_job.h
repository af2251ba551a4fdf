#pragma once

#include "app/jobs/commands/kernel_report.h"
#include "base/job_hooks.h"
#include "base/result.h"
#include "kernels/device_bench.h"

namespace draftscope {

/// Replaces sizes that the head does not have: the default rank, and gathered rows beyond V. Returns a line
/// for each size that it changed.
std::vector<std::string> fit_kernel_sizes(KernelSettings& settings);

/// Checks sizes and names. Errors are bad_input and begin with the option.
Status check_kernel_settings(const KernelSettings& settings);

/// Measures the head, gather, layer and selection kernels on random data, between two probes of the memory
/// bandwidth. Errors: bad_input for an impossible size; cancelled.
Result<KernelReport> measure_kernels(const KernelSettings& settings, const JobHooks& hooks = {});

/// Time of one op in PyTorch.
struct TorchTime {
    std::string op;
    int rows = 0;
    double median_us = 0, best_us = 0;
};
/// PyTorch's times for the same shapes on the same GPU.
struct TorchTimes {
    std::string version, device;
    std::vector<TorchTime> ops;
    /// Returns PyTorch's time for the same work; null if PyTorch has none. PyTorch's name begins ours, and
    /// only cold times are compared.
    const TorchTime* find(const kernels::DeviceMeasured& measured) const;
};
/// Checks that this interpreter can time kernels. Call before a long benchmark.
Status check_torch(const std::string& python);
/// Runs assets/peers/torch_heads.py, whose messages go to stderr.
Result<TorchTimes> time_torch(const std::string& python, const kernels::DeviceBenchOptions& options);
/// Parses the JSON document that the script prints.
Result<TorchTimes> parse_torch(const std::string& document);

}  // namespace draftscope
