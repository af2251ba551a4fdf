#pragma once

#include <span>
#include <vector>

#include "capture/rows.h"

namespace draftscope {

/// One row of v_step_phase: the time and bytes of a phase in a step, as defined in capture/queries.h.
struct StepPhaseRow {
    int phase_id = 0;
    TimeNs busy_ns = 0, exposed_ns = 0;
    std::int64_t bytes = 0;
};
/// Returns one row, ordered by phase id, for each phase in `spans` and one for the remainder. `spans` are all
/// spans of the step, in any order. A step that was not sampled has no rows.
std::vector<StepPhaseRow> step_phase_rows(const StepRow& step, std::span<const SpanRow> spans);

}  // namespace draftscope
