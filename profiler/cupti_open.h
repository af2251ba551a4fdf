#pragma once

#include <cupti.h>

#include <string>

namespace draftscope {

/// libcupti, opened once and never closed; null with what was tried in `name` when there is none. `wanted` ""
/// = environment DRAFTSCOPE_CUPTI, then the usual names and places.
void* open_cupti(const std::string& wanted, std::string& name);
/// CUPTI's own words for an error code; `result_string` null = an older library.
std::string cupti_message(decltype(&cuptiGetResultString) result_string, int code);

}  // namespace draftscope
