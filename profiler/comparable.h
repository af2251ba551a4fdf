#pragma once

#include <string>
#include <vector>

#include "capture/rows.h"

namespace draftscope {

/// A setting in which two runs differ.
struct RunDifference {
    std::string what;  ///< "tier", "CPU", "max-new", "head", ...
    std::string a, b;
    /// Numbers of the two don't belong in one comparison: other targets, tiers, machines or back ends,
    /// synthetic against real, or other texts (sampling, length, ends). The rest is what a comparison is made
    /// for.
    bool forbids = false;
    bool separates = false;  ///< ... nor in one file: those of the above whose texts alone may be equal
};
/// By the fields of capture/run_setting.h, which also decide which runs the views compare.
std::vector<RunDifference> run_differences(const RunRow& a, const RunRow& b);

/// "tier (T0 and T1), CPU (X and Y)" of those that forbid; "" when nothing does.
std::string forbidding_text(const std::vector<RunDifference>& differences);
/// The same of those that keep runs out of one file.
std::string separating_text(const std::vector<RunDifference>& differences);
/// The same of all.
std::string difference_text(const std::vector<RunDifference>& differences);
/// The same of what is neither forbidden nor drafter, head, tree or seed: "threads (2 and 1)".
std::string further_text(const std::vector<RunDifference>& differences);

/// Whether two runs can differ in the draft LM head and the seed only: what rho_tau, nu and the measured
/// speed-up of a head are taken over, as in the view v_head.
bool comparable(const RunRow& a, const RunRow& b);

}  // namespace draftscope
