#pragma once

#include "engine/verify/verify.h"

/// Shared by rules under which the emitted tokens may differ from the target's choices.
namespace draftscope {

/// Sets `path` to the nodes from the root to `node`.
void path_to(const DraftTree& tree, int node, std::vector<int>& path);

/// Sets `token` as the token that the target emits after `node`.
void emit(const VerifyRows& rows, int node, TokenId token, TargetChoice& choice);
/// Emits the target's most probable token; ties go to the lower id.
void emit_best(const VerifyRows& rows, int node, TargetChoice& choice);
/// Emits the drafts along an accepted path, and the bonus at its end.
void emit_path(const DraftTree& tree, const VerifyRows& rows, const Acceptance& acceptance,
               std::span<TargetChoice> choices);

/// Device versions: emit `token` with raw logit `logit`, and the drafts along a path.
void emit(const JudgedTree& judged, TokenId token, float logit, TargetChoice& choice);
void emit_drafts(const DraftTree& tree, const JudgedTree& judged, std::span<const int> path,
                 std::span<TargetChoice> choices);

}  // namespace draftscope
