#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace draftscope {

/// Paths of the library `name` in the packages that come with PyTorch, for the first python3 on PATH.
/// NVIDIA's own packages come first, then Triton's. Nothing is run: only folders are read.
std::vector<std::string> wheel_libraries(std::string_view name);

}  // namespace draftscope
