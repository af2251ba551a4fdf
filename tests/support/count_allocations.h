#pragma once

#include <cstdint>

namespace draftscope::testing {

/// Number of calls of operator new in this program so far.
std::int64_t allocations_so_far();
/// The same for the calling thread.
std::int64_t own_allocations_so_far();

}  // namespace draftscope::testing
