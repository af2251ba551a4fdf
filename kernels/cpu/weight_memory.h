#pragma once

#include <cstddef>

namespace draftscope::kernels {

/// Allocates uninitialised memory for weights, 64-byte aligned; release it with free_weights(). Matrices are
/// contiguous in huge pages if the system has them. Streaming weights through 4 KiB pages costs 10 to 40 % of
/// the bandwidth, and most matrices of a small model are smaller than a huge page. Thread-safe; throws
/// std::bad_alloc.
std::byte* allocate_weights(std::size_t bytes);
void free_weights(std::byte* weights);

}  // namespace draftscope::kernels
