#pragma once

#include "app/jobs/commands/commands.h"

namespace draftscope {

/// Describes the machine, and lists what is installed. Takes about a second.
WindowChoices list_window_choices();

}  // namespace draftscope
