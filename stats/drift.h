#pragma once

#include <compare>
#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <unordered_map>

#include "capture/capture.h"
#include "stats/bootstrap.h"

/// Detects whether the machine's speed differed between two recordings, with verification as the control.
/// Verification runs the target over the draft tree, so for equal trees and texts its time does not depend on
/// the draft LM head. A difference therefore comes from the machine (its clock, its memory, other programs).
namespace draftscope {

/// Shape of one target forward pass.
struct VerifyShape {
    int rows = 0;       ///< nodes of all trees in the step
    int sequences = 1;  ///< in the step
    auto operator<=>(const VerifyShape&) const = default;
};
struct VerifyTime {
    double rounds = 0;
    double ns = 0;  ///< exposed time; a step's time is divided evenly among its rounds
};
using VerifyTimes = std::map<VerifyShape, VerifyTime>;
void add(VerifyTimes& sum, const VerifyTimes& more);
VerifyShape verify_shape(const Snapshot& snapshot, const StepEntry& step);
/// Returns the verification times of each prompt over counted steps.
std::unordered_map<RowId, VerifyTimes> verify_times(const Snapshot& snapshot, RowId run_id);

/// Result of the control. Each conversation is compared with itself, shape by shape.
struct MachineControl {
    std::size_t conversations = 0;
    double rounds = 0;          ///< compared on each side
    double a_ns = 0, b_ns = 0;  ///< time per round
    Estimate ratio;             ///< b / a
    /// True if the interval excludes 1 and the ratio exceeds the effect of caches that a head leaves behind
    /// (our choice: 5 %). Absent if there are too few conversations.
    std::optional<bool> differs;
    bool is_large() const;
};
/// Verification times of one conversation on both sides.
struct VerifyPair {
    VerifyTimes a, b;
};
/// `conversations` holds both sides of each one. Absent if no shape occurred on both sides.
std::optional<MachineControl> machine_control(std::span<const VerifyPair> conversations,
                                              const BootstrapOptions& options = {});

/// Time over the shapes of both sides. Each shape is weighted by the rounds of the side with fewer.
struct MatchedTime {
    double rounds = 0, a_ns = 0, b_ns = 0;
    void add(const MatchedTime& other, double times = 1) {
        rounds += times * other.rounds;
        a_ns += times * other.a_ns;
        b_ns += times * other.b_ns;
    }
};
MatchedTime matched(const VerifyPair& pair);

}  // namespace draftscope
