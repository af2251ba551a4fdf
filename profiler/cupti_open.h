#pragma once

#include <string>

namespace draftscope {

/// libcupti, opened once and never closed; null with what was tried in `name` when there is none. `wanted` ""
/// = environment DRAFTSCOPE_CUPTI, then the usual names and places.
void* open_cupti(const std::string& wanted, std::string& name);

}  // namespace draftscope
