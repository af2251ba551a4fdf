#pragma once

#include <memory>

#include "kernels/device.h"

namespace draftscope::testing {

/// A device that runs the kernels of kernels/cuda themselves, compiled for the host, thread by thread
/// (kernels/cuda/simt_host.h). Memory ends where an allocation does: what reads or writes past it ends the
/// program. `order`: in which order the threads of a block take turns.
std::unique_ptr<kernels::Device> make_simt_device(unsigned order);

}  // namespace draftscope::testing
