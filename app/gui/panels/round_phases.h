#pragma once

#include "app/gui/models/phases.h"
#include "app/gui/panels/panel.h"

namespace draftscope {

/// The phase table of the selected run or range, built once for all panels.
struct SharedPhases {
    RebuildThrottle rebuild;
    PhasesBuilder builder;
    PhasesModel model;
};
/// Returns the phase table as of this frame.
inline const PhasesModel& shared_phases(PanelContext& context) {
    SharedPhases& shared = context.panel_state.get<SharedPhases>();
    auto key = static_cast<std::uint64_t>(context.ui.run_id);
    if (const auto& range = context.ui.range)
        key = (key * 1000003u + static_cast<std::uint64_t>(range->start_ns)) * 1000003u +
              static_cast<std::uint64_t>(range->end_ns);
    shared.rebuild.update(context, key, [&] {
        shared.model = shared.builder.build(context.snapshot, context.ui.run_id, context.ui.range);
    });
    return shared.model;
}

/// Draws the phases of one step with their times and the run's medians. `step_index`: into `snapshot`, which
/// is the context's or the round in flight. If `size` is too small, the shortest phases are left out.
void draw_round_phases(PanelContext& context, const Snapshot& snapshot, std::size_t step_index, ImVec2 size);
/// Draws the phases of a round's drafting over those of a what-if, in two lines.
void draw_draft_phases(const Style& style, const StepPhases& decoded, const StepPhases& what_if);
/// Returns the height that shows all phases of a step.
float round_phases_height(const Style& style);

}  // namespace draftscope
