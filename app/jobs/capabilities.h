#pragma once

#include "profiler/machine.h"

namespace draftscope {

/// Describes this machine and what this build can do on it: describe_machine() with the kernels' instruction
/// set and the CUDA back end. Captures, the window and `doctor` all show this.
Machine describe_capabilities(bool probe_cupti = false);

}  // namespace draftscope
