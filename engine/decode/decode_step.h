#pragma once

#include "base/reusable_vector.h"
#include "engine/decode/backend_step.h"
#include "engine/decode/live_round_publisher.h"
#include "engine/decode/session.h"
#include "engine/shadow/shadow_drafter.h"

namespace draftscope {

/// Runs the steps of the decode loop. In a step, the active sequences' rounds are drafted together, verified
/// in one forward pass of the target, then accepted and committed one by one.
class DecodeStep {
  public:
    explicit DecodeStep(DecodeContext& core)
        : core_(core),
          live_(core),
          shadow_drafter_(core),
          backend_step_(core),
          sampling_{core.options.sampling.temperature, core.options.sampling.seed,
                    core.options.sampling.top_p, core.options.sampling.top_k} {}

    /// Runs and records a step. Afterwards rounds() has the outcomes in the order of `sequences`.
    Status step(std::span<const std::unique_ptr<Sequence>> sequences);
    std::span<const Round> rounds() const { return rounds_; }
    const DecodeTotals& totals() const { return totals_; }

  private:
    bool is_sampled(std::int64_t step) const;
    Status draft_and_verify();
    Status make_jobs();
    Status accept();
    void accept_round(Round& round);
    Status commit();
    void observe();
    void read_best(Round& round);
    void make_round_rows(Round& round);
    void record(std::uint64_t start, std::uint64_t end);
    void push_records(const StepRow& row);
    void count(const StepRow& row);

    DecodeContext& core_;
    LiveRoundPublisher live_;
    ShadowDrafter shadow_drafter_;
    BackendStep backend_step_;
    DraftSampling sampling_;  ///< sampling of drafts, if the rule needs sampled drafts
    DecodeTotals totals_;
    // Data of the current step. Memory is reused by later steps.
    ReusableVector<Round> rounds_;
    std::vector<TargetSample> choices_;  ///< of every row
    ReusableVector<DraftJob> jobs_;      ///< one for each round that drafts
    std::vector<int> nodes_;             ///< node indices of one tree
};

}  // namespace draftscope
