#pragma once

#include <span>
#include <vector>

#include "engine/transformer/device_logits.h"
#include "engine/verify/verify.h"

/// The question about rejection sampling that a device does on the rows that it made.
namespace draftscope {

/// Adds the nodes of a tree that have children; its rows begin at `first_row`, `place` is that of the token
/// after the root. `node_of` gets one number a row: its node in the question, -1 = none.
void add_residuals(const DraftTree& tree, int first_row, std::uint64_t seed, const TokenPosition& place,
                   ResidualQuestion& question, std::vector<int>& node_of);

}  // namespace draftscope
