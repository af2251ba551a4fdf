#pragma once

#include "app/jobs/commands/commands.h"
#include "app/jobs/watch/watch_job.h"

namespace draftscope {

/// Describes the machine, and lists what is installed. Takes about a second.
WindowChoices list_window_choices();

/// Returns what is wrong in the forms, without loading a model.
FormCheck check_forms(const FormValues& values);

/// Reads the prompts and the texts of tokens of a watch. `vocabulary`: the id that its vocabulary gets.
Result<WatchConfig> watch_config(const CmdWatchServer& command, RowId vocabulary);

}  // namespace draftscope
