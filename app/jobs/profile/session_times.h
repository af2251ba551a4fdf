#pragma once

#include <vector>

#include "base/job_hooks.h"
#include "base/result.h"
#include "engine/decode/session.h"
#include "stats/machine_profile.h"

namespace draftscope {

/// A setting whose steps are timed. All sequences have prompts of `context` random tokens.
struct ProfileSession {
    TreeSpec tree;  ///< ignored by a drafter that drafts nothing
    int context = 64, batch = 1;
    int rounds = 12;  ///< counted steps; fewer if they take long
};

/// A target pass of one row, at the same context each time. Between the steps of a session it measures how
/// fast the machine is.
class ControlPass {
  public:
    static Result<ControlPass> make(Target& target, kernels::Backend& backend);
    /// Runs the pass and returns its milliseconds.
    Result<double> run();

  private:
    ControlPass(Target& target, kernels::Backend& backend, KvCache cache)
        : target_(target), backend_(backend), cache_(std::move(cache)) {}

    Target& target_;
    kernels::Backend& backend_;
    KvCache cache_;
    ForwardOutput out_;
};

/// The models of a session. The target has a tokenizer.
struct ProfileModels {
    Target& target;
    Drafter& drafter;
    LmHead* head = nullptr;  ///< null for drafters without one
    kernels::Backend& backend;
    ControlPass& control;
};

/// A part's time in units of the control. Points of heads have neither context nor batch, because their calls
/// depend on rows alone.
struct PartPoint {
    CostPart part = CostPart::verify;
    CostPoint point;
};
struct SessionTimes {
    std::vector<PartPoint> points;
    double control_ms = 0;   ///< mean time of the control
    double active_rows = 0;  ///< mean rows of the LM head that a head's call read; 0 = no head
};

/// Decodes the session with the control before and after each step. Returns the times of its full steps,
/// those in which every sequence verified `tree.nodes` nodes. No points if the drafter found too few drafts.
Result<SessionTimes> time_session(const ProfileModels& models, const ProfileSession& session,
                                  const JobHooks& hooks);
/// Returns the positions that a session needs in the target's context.
int positions_needed(const ProfileSession& session);

}  // namespace draftscope
