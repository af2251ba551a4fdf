#pragma once

#include <memory>

#include "engine/heads/artefact.h"

namespace draftscope {

/// Creates the suffix "+rdk" (arXiv 2506.03206): q'' = q' M. It redistributes the base head's distribution q'
/// over tokens outside its support by a row-stochastic token affinity M. With `--verify pq`, q'' is both
/// sampled from and used for acceptance, which is lossless. With exact match it only proposes other tokens.
/// How the paper builds M is not confirmed: ours comes from `fit rdk`.
std::unique_ptr<LmHead> make_rdk_head(std::unique_ptr<LmHead> base, HeadArtefact affinity);

/// Opens the affinity artefact among `artefacts`. If none is given, bad_input says how to make one.
Result<HeadArtefact> required_affinity(const HeadSpec& spec, const HeadFiles& artefacts);

}  // namespace draftscope
