#pragma once

#include "engine/verify/verify.h"

/// Shared by the rules under which the target does not simply emit its own token everywhere.
namespace draftscope {

/// Makes `path` the nodes from the root to `node`.
void path_to(const DraftTree& tree, int node, std::vector<int>& path);

/// Makes `token` what the target emits after `node`.
void emit(const VerifyRows& rows, int node, TokenId token, TargetChoice& choice);
/// The target's most probable token, ties to the lower id.
void emit_best(const VerifyRows& rows, int node, TargetChoice& choice);
/// Along an accepted path the target emits the drafts, and the bonus at its end.
void emit_path(const DraftTree& tree, const VerifyRows& rows, const Acceptance& acceptance,
               std::span<TargetChoice> choices);

/// The same from what a device says of the rows: `token` of raw logit `logit`, and the drafts along a path.
void emit(const JudgedTree& judged, TokenId token, float logit, TargetChoice& choice);
void emit_drafts(const DraftTree& tree, const JudgedTree& judged, std::span<const int> path,
                 std::span<TargetChoice> choices);

}  // namespace draftscope
