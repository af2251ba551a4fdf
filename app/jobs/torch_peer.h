#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "kernels/device_bench.h"

namespace draftscope {

struct TorchTime {
    std::string op;
    int rows = 0;
    double median_us = 0, best_us = 0;
};
/// What PyTorch needs for the same shapes on the same GPU.
struct TorchPeer {
    std::string version, device;
    std::vector<TorchTime> ops;
    /// Null where PyTorch has no such op.
    const TorchTime* of(const kernels::DeviceMeasured& measured) const;
};
/// Can this interpreter time anything? Before a bench of minutes.
Status check_torch(const std::string& python);
/// Runs assets/peers/torch_heads.py; what it says goes to the error.
Result<TorchPeer> time_torch(const std::string& python, const kernels::DeviceBenchOptions& options);
/// The peer's document.
Result<TorchPeer> parse_torch(const std::string& document);

}  // namespace draftscope
