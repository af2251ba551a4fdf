#pragma once

#include <string>
#include <vector>

#include "capture/rows.h"

namespace draftscope {

/// A setting in which two runs differ.
struct RunDifference {
    std::string what;  ///< "tier", "CPU", "max-new", "head", ...
    std::string a, b;
    /// Whether the difference rules out a comparison. This holds for different targets, tiers, machines or
    /// back ends, for synthetic against real, and for different texts (sampling, length, ends). Other
    /// differences may be the subject of a comparison.
    bool forbids = false;
    /// Whether the runs may not share a file: as `forbids`, except differences in the texts alone.
    bool separates = false;
};
/// Returns the differences by the fields of capture/run_setting.h, which the views also use.
std::vector<RunDifference> run_differences(const RunRow& a, const RunRow& b);

/// Formats the forbidding differences: "tier (T0 and T1), CPU (X and Y)"; "" if there are none.
std::string forbidding_text(const std::vector<RunDifference>& differences);
/// Formats the differences that keep runs out of one file.
std::string separating_text(const std::vector<RunDifference>& differences);
std::string difference_text(const std::vector<RunDifference>& differences);
/// Formats the allowed differences other than drafter, head, tree and seed: "threads (2 and 1)".
std::string allowed_difference_text(const std::vector<RunDifference>& differences);

/// Returns whether two runs differ at most in draft LM head and seed. Only such runs are used for rho_tau, nu
/// and the measured speed-up of a head, as in the view v_head.
bool comparable(const RunRow& a, const RunRow& b);

}  // namespace draftscope
