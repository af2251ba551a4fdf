#pragma once

#include <compare>
#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <unordered_map>

#include "capture/capture.h"
#include "profiler/bootstrap.h"

/// Whether the machine was the same for two recordings. Verification is the control: it computes the target
/// over the rows of the draft tree, so over equal trees and texts its time does not depend on the draft LM
/// head. Where it differs, so did the machine (its clock, its memory, other programs).
namespace draftscope {

/// What one pass of the target verified.
struct VerifyShape {
    int rows = 0;       ///< nodes of all trees of the step
    int sequences = 1;  ///< of the step
    auto operator<=>(const VerifyShape&) const = default;
};
struct VerifyTime {
    double rounds = 0;
    double ns = 0;  ///< exposed; a step's time is divided evenly among its rounds
};
using VerifyTimes = std::map<VerifyShape, VerifyTime>;
void add(VerifyTimes& sum, const VerifyTimes& more);
/// The phase of verification, as an index into StepPhases.
std::size_t verify_phase_index();
VerifyShape verify_shape(const Snapshot& snapshot, const StepEntry& step);
/// By prompt, over counted steps.
std::unordered_map<RowId, VerifyTimes> verify_times(const Snapshot& snapshot, RowId run_id);

/// The control of two recordings; each conversation is compared with itself, shape by shape.
struct MachineControl {
    std::size_t conversations = 0;
    double rounds = 0;          ///< compared on either side
    double a_ns = 0, b_ns = 0;  ///< per round
    Estimate ratio;             ///< b / a
    /// The interval does not hold 1 and the ratio is further from it than caches that a head leaves behind
    /// explain (our choice: 5 %). Absent with too few conversations to tell.
    std::optional<bool> differs;
    bool is_large() const;
};
struct VerifyPair {
    VerifyTimes a, b;
};
/// `conversations` holds both sides of each. Absent where no shape occurred on both sides.
std::optional<MachineControl> machine_control(std::span<const VerifyPair> conversations,
                                              const BootstrapOptions& options = {});

/// Time over the shapes that both sides have, each weighted by the rounds of the side that has fewer.
struct MatchedTime {
    double rounds = 0, a_ns = 0, b_ns = 0;
};
MatchedTime matched(const VerifyPair& pair);

}  // namespace draftscope
