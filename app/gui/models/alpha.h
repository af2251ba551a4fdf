#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "capture/capture.h"

/// alpha, the overlap of draft and target distributions, of a run's recorded draft trees.
namespace draftscope {

/// Bounds of alpha, the sum of min(p, q) over all tokens (SlimSpec, arXiv 2605.10453, section 4.2). It is a
/// mean over the root and the accepted nodes that have drafts. A node's drafts give a part of its sum; what
/// the distributions have left of 1 bounds the rest.
struct AlphaBounds {
    double low = 0, high = 0;
    std::int64_t positions = 0;
    int drafts = 0;      ///< depth of the deepest tree
    bool chains = true;  ///< every tree is a chain
};
/// Returns the bounds for the run's driving head. Absent without recorded trees, for trees that stay in their
/// file, and at temperatures other than 0 and 1: there the draft's and the target's differ.
std::optional<AlphaBounds> recorded_alpha(const Snapshot& snapshot, const RunRow& run);

/// Returns "alpha 0.71 to 0.74 ...; eq. 1: 3.2 to 3.4 tokens ...". `tau` and `speedup`, over plain decoding,
/// are the run's; both are 0 if unknown. For chains they give the speed-up of eq. 2, whose costs are the
/// run's (DynaSpec, arXiv 2510.13847).
std::string alpha_text(const AlphaBounds& alpha, double tau, double speedup);

}  // namespace draftscope
