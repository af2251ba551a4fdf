#pragma once

#include <string>

namespace draftscope {

/// Returns help for all head strategies: paper, required files, parameters. Values that no paper states are
/// marked "our default".
std::string head_help();

}  // namespace draftscope
