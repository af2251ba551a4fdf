#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "profiler/tree_choice.h"

/// Acceptance that was measured once, for the demo model and its drafters (assets/demo_acceptance.json, made
/// by tools/make_acceptance_table.py): what `--tree quick` forecasts from instead of a pilot's own rounds.
namespace draftscope {

struct TreeAcceptance {
    TreeShape tree;
    double tau = 1;
};
/// By head spec.
using ShippedAcceptance = std::map<std::string, std::vector<TreeAcceptance>>;

/// The table of one drafter; empty when none is shipped for it.
Result<ShippedAcceptance> shipped_acceptance(const std::string& drafter);
/// As in `path`.
Result<ShippedAcceptance> read_acceptance(const std::string& path, const std::string& drafter);

}  // namespace draftscope
