#pragma once

#include <string>
#include <vector>

#include "app/jobs/commands/job_hooks.h"
#include "base/result.h"
#include "engine/decode/session.h"
#include "profiler/stats/machine_profile.h"

namespace draftscope {

/// A setting whose steps are timed. All sequences have prompts of `context` random tokens.
struct ProfileSession {
    TreeSpec tree;  ///< ignored by a drafter that drafts nothing
    int context = 64, batch = 1;
    int rounds = 12;  ///< counted steps; fewer if they take long
};

/// The models of a session. The target has a tokenizer.
struct ProfileModels {
    Target& target;
    Drafter& drafter;
    LmHead* head = nullptr;  ///< null for drafters without one
    kernels::Exec& exec;
};

/// A part's time. Points of heads have neither context nor batch, because their calls depend on rows alone.
struct PartPoint {
    CostPart part = CostPart::verify;
    CostPoint point;
};
struct SessionTimes {
    std::vector<PartPoint> points;
    double active_rows = 0;  ///< mean rows of the LM head that a head's call read; 0 = no head
};

/// Decodes the session and returns the times of its full steps: those in which every sequence verified
/// `tree.nodes` nodes. No points if the drafter found too few drafts.
Result<SessionTimes> time_session(const ProfileModels& models, const ProfileSession& session,
                                  const JobHooks& hooks);
/// Returns the positions that a session needs in the target's context.
int positions_needed(const ProfileSession& session);

}  // namespace draftscope
