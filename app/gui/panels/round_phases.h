#pragma once

#include "app/gui/panels/panel.h"

namespace draftscope {

/// Draws the phases of one step with their times and the run's medians. `step_index`: into `snapshot`, which
/// is the context's or the round in flight. If `size` is too small, the shortest phases are left out.
void draw_round_phases(PanelContext& context, const Snapshot& snapshot, std::size_t step_index, ImVec2 size);
/// Returns the height that shows all phases of a step.
float round_phases_height(const Style& style);

}  // namespace draftscope
