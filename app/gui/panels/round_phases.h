#pragma once

#include "app/gui/panels/panel.h"

namespace draftscope {

/// Where the time of one step went, phase by phase, against the run's median: the numbers behind the lanes
/// above it. The step is one of `snapshot`: the context's or the round in flight. Fills `size`; phases that
/// do not fit are left out from the shortest.
void draw_round_phases(PanelContext& context, const Snapshot& snapshot, std::size_t step_index, ImVec2 size);
/// Height that shows all phases of a step.
float round_phases_height(const Style& style);

}  // namespace draftscope
