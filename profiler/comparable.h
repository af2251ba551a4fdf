#pragma once

#include <string>
#include <vector>

#include "capture/rows.h"

namespace draftscope {

/// A setting in which two runs differ.
struct RunDifference {
    std::string what;  ///< "tier", "CPU", "head", ...
    std::string a, b;
    /// Numbers of the two don't belong in one comparison: other targets, tiers, machines, back ends, or
    /// synthetic against real. The rest is what a comparison is made for.
    bool forbids = false;
};
std::vector<RunDifference> run_differences(const RunRow& a, const RunRow& b);

/// "tier (T0 and T1), CPU (X and Y)" of those that forbid; "" when nothing does.
std::string forbidding_text(const std::vector<RunDifference>& differences);

}  // namespace draftscope
