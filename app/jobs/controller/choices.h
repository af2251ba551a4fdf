#pragma once

#include "app/jobs/commands/commands.h"

namespace draftscope {

/// Describes the machine, and lists what is installed. Takes about a second.
WindowChoices list_window_choices();

/// Returns what is wrong in the forms, without loading a model.
FormCheck check_forms(const FormValues& values);

}  // namespace draftscope
