#pragma once

#include "profiler/machine/machine.h"

namespace draftscope {

/// Describes this machine and the capabilities of this build: describe_machine(), the kernels' instruction
/// set and the CUDA back end. Captures, the window and doctor show the result.
Machine describe_capabilities(bool probe_cupti = false);

}  // namespace draftscope
