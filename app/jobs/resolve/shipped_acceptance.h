#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "stats/tree_choice.h"

/// Reads the shipped acceptance of the demo model's drafters (assets/demo_acceptance.json). The table is made
/// by tools/make_acceptance_table.py; --tree quick forecasts from it instead of from pilot rounds.
namespace draftscope {

/// A tree with its measured acceptance by conversation.
struct TreeAcceptance {
    TreeShape tree;
    std::vector<SweepUnit> units;
};
/// Acceptance of trees by head spec.
using ShippedAcceptance = std::map<std::string, std::vector<TreeAcceptance>>;

/// Returns the table of one drafter; empty if none is shipped.
Result<ShippedAcceptance> load_shipped_acceptance(const std::string& drafter);
/// Reads the table of one drafter from `path`.
Result<ShippedAcceptance> read_acceptance(const std::string& path, const std::string& drafter);

}  // namespace draftscope
