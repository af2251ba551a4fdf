#pragma once

#include <memory>

#include "kernels/backend.h"

namespace draftscope::testing {

/// Creates a device that runs the kernels of kernels/cuda on the host, thread by thread. They are compiled
/// for the host with kernels/cuda/simt_host.h. Access past the end of an allocation ends the program. `order`
/// selects the order in which the threads of a block run.
std::unique_ptr<kernels::Backend> make_simt_backend(unsigned order);

}  // namespace draftscope::testing
