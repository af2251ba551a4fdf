#pragma once

#include <cstddef>

namespace draftscope::kernels {

/// Memory for weights, 64-byte aligned, its contents undefined; to be given back with free_weights().
/// Matrices lie one behind the other in huge pages where the system has them: streaming weights through 4 KiB
/// pages costs 10 to 40 % of the bandwidth, and most matrices of a small model are smaller than a huge page.
/// From any thread; throws std::bad_alloc.
std::byte* allocate_weights(std::size_t bytes);
void free_weights(std::byte* weights);

}  // namespace draftscope::kernels
