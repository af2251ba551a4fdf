#pragma once

#include <cupti.h>

#include <string>

#include "profiler/cupti_api.h"

namespace draftscope {

/// libcupti, opened once and never closed, and its name in `found.library`. Null when there is none: `found`
/// then says so, with what was tried and what to do. `wanted` "" = environment DRAFTSCOPE_CUPTI, then the
/// usual names and places.
void* open_cupti(const std::string& wanted, CuptiProbe& found);
/// CUPTI's own words for an error code; `result_string` null = an older library.
std::string cupti_message(decltype(&cuptiGetResultString) result_string, int code);

}  // namespace draftscope
