#pragma once

#include <cstdint>

namespace draftscope::testing {

/// Number of calls of operator new in this program so far.
std::int64_t total_allocations();
/// The same for the calling thread.
std::int64_t thread_allocations();

}  // namespace draftscope::testing
