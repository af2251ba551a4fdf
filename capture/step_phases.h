#pragma once

#include <span>
#include <vector>

#include "capture/rows.h"

namespace draftscope {

/// One row of v_step_phase: what a phase took in a step, by the definitions of capture/queries.h.
struct StepPhaseRow {
    int phase_id = 0;
    TimeNs busy_ns = 0, exposed_ns = 0;
    std::int64_t bytes = 0;
};
/// Of every phase that has a span among `spans` (all of the step, in any order), and of the remainder; by
/// phase id.
std::vector<StepPhaseRow> step_phase_rows(const StepRow& step, std::span<const SpanRow> spans);

}  // namespace draftscope
