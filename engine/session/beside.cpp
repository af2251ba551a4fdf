#include "engine/session/beside.h"

#include "engine/session/round_rows.h"

namespace draftscope {

bool BesideDrafts::due(std::int64_t step) const {
    const DecodeOptions& options = core_.options;
    // Other drafts are judged by exact match, so only a run under that rule is like for like.
    return rule_at(options.verify, options.sampling.temperature) == VerifyRule::match && core_.records.on() &&
           core_.full_head != nullptr && core_.head != nullptr && core_.full_head != core_.head &&
           core_.drafter.uses_head() && core_.records.head_text() != "full" &&
           calibrated_ < options.calibration_rounds && step >= options.warmup_steps &&
           (step - options.warmup_steps) % 2 == 0;
}

Status BesideDrafts::draft(std::span<const DraftJob> jobs, std::span<Sequence* const> sequences,
                           std::span<const std::size_t> indices) {
    core_.phases.set_observer(nullptr);  // stepping is about the driving head
    const Status status = calibrate(jobs, sequences, indices);
    core_.phases.set_observer(&core_.gate);
    return status;
}

Status BesideDrafts::calibrate(std::span<const DraftJob> driving, std::span<Sequence* const> sequences,
                               std::span<const std::size_t> indices) {
    core_.spans.collect();
    const std::size_t first = core_.spans.size();
    std::vector<DraftJob> jobs(driving.begin(), driving.end());
    for (DraftJob& job : jobs) {
        job.head_state = nullptr;
        job.head_rows.clear();
    }
    DraftContext context{core_.exec, core_.phases, core_.full_head, core_.options.tree, nullptr};
    const std::vector<HeadState*> no_states(jobs.size(), nullptr);
    ProposeContext at_start{core_.exec, core_.phases, 0};
    core_.full_head->begin_round(at_start, no_states);
    DS_TRY(core_.drafter.expand(context, jobs));
    core_.spans.collect();
    const TimeNs head_ns = core_.spans.head_ns(first, core_.spans.size());
    head_ns_ += head_ns;
    ++calibrated_;
    for (std::size_t i = 0; i < jobs.size(); ++i) {
        HeadEvalRow row = head_row(*core_.full_head, jobs, i, "full", HeadMode::calibration);
        row.run_id = core_.records.run_id();
        row.round_id = core_.records.next_round_id(indices[i]);
        row.head_ns = part_of(head_ns, i, jobs.size());
        row.covered_mass = 1.0;
        sequences[i]->calibration.add(std::move(jobs[i].out), std::move(row), sequences[i]->tokens.size());
    }
    return {};
}

}  // namespace draftscope
