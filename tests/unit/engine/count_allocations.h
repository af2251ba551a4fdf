#pragma once

#include <cstdint>

namespace draftscope::testing {

/// Calls of operator new in this program so far.
std::int64_t allocations_so_far();
/// Those of the calling thread.
std::int64_t own_allocations_so_far();

}  // namespace draftscope::testing
