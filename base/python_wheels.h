#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace draftscope {

/// Returns the paths of library `name` in the packages that PyTorch installs, for the first python3 on PATH.
/// NVIDIA's packages come first, then Triton's. Only reads folders; runs no program.
std::vector<std::string> wheel_libraries(std::string_view name);

}  // namespace draftscope
