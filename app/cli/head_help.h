#pragma once

#include <string>

namespace draftscope {

/// The head strategies with their papers, what they need and their parameters; a value that no paper states
/// is marked "our default".
std::string head_help();

}  // namespace draftscope
