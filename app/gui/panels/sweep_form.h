#pragma once

#include <memory>

#include "app/gui/panels/panel.h"

/// What the Sweep and Advisor panels share: the settings of the next sweep, and the sweep that is shown.
namespace draftscope {

/// Returns the shown sweep, after a choice if there are several; null without one.
std::shared_ptr<const SweepReport> choose_sweep(PanelContext& context);

/// Returns the sweep that choose_sweep() returned last, or the first one; null without one.
std::shared_ptr<const SweepReport> shown_sweep(PanelContext& context);

/// Draws "Find the fastest setting", or the four steps and their progress while it runs.
void draw_find_fastest(PanelContext& context);

/// Starts the search for the fastest setting with the session's model, drafter and prompts, and shows the
/// Advisor.
void start_find_fastest(const RunConfig& config, Commands& commands, UiState& ui);

/// Draws fields and the button that starts a sweep, or its progress and the button that stops it. `search`
/// searches like `advise`.
void draw_sweep_form(PanelContext& context, bool search);

/// Sets the recording or the costs of the next sweep.
void set_sweep_input(PanelState& state, const std::string& path, bool recording);

/// Makes a setting of a sweep the one of the next run. Model, recorded prompts, threads and precision are the
/// sweep's. A sweep for more threads than this machine has runs with all of them.
void use_setting(RunConfig& config, const SweepReport& view, const SweepSetting& setting);

}  // namespace draftscope
