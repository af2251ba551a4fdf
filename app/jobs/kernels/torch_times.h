#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "kernels/device_bench.h"

namespace draftscope {

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
