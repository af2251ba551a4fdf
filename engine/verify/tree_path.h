#pragma once

#include "engine/verify/verify.h"

/// Shared by rules under which the emitted tokens may differ from the target's choices.
namespace draftscope {

/// Sets `path` to the nodes from the root to `node`.
void path_to(const DraftTree& tree, int node, std::vector<int>& path);

/// Sets `token` as the token that the target emits after `node`.
void emit(const TreeLogits& rows, int node, TokenId token, TargetSample& choice);
/// Emits the target's most probable token; ties go to the lower id.
void emit_best(const TreeLogits& rows, int node, TargetSample& choice);
/// Emits the drafts along an accepted path, and the bonus at its end.
void emit_path(const DraftTree& tree, const TreeLogits& rows, const Acceptance& acceptance,
               std::span<TargetSample> choices);

/// Device versions: emit `token` with raw logit `logit`, and the drafts along a path.
void emit(const TreeVerdictInputs& verdict, TokenId token, float logit, TargetSample& choice);
void emit_drafts(const DraftTree& tree, const TreeVerdictInputs& verdict, std::span<const int> path,
                 std::span<TargetSample> choices);

}  // namespace draftscope
