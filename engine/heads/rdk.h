#pragma once

#include <memory>

#include "engine/heads/artefact.h"

namespace draftscope {

/// The suffix "+rdk" (arXiv 2506.03206): `base`'s distribution q' over its own support, spread over the
/// tokens that the support lacks by a row-stochastic token affinity, q'' = q' M. Lossless with `--verify pq`,
/// where q'' both draws the drafts and judges them; with exact match it merely proposes other tokens. How the
/// paper makes M is not confirmed: ours comes from `fit rdk`.
std::unique_ptr<Head> make_rdk_head(std::unique_ptr<Head> base, HeadArtefact affinity);

/// The affinity artefact among `artefacts`; none given is bad_input that says how to make one.
Result<HeadArtefact> needed_affinity(const HeadSpec& spec, const HeadArtefacts& artefacts);

}  // namespace draftscope
