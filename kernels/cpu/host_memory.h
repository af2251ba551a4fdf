#pragma once

namespace draftscope::kernels {

/// Makes host_memory() refuse memory after `allocations` more buffers, for tests; -1 = no limit.
void limit_host_memory(int allocations);
/// Returns the number of buffers left until the limit, or -1.
int host_memory_left();

}  // namespace draftscope::kernels
