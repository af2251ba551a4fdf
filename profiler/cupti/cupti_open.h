#pragma once

#include <cupti.h>

#include <string>

#include "profiler/cupti/cupti_api.h"

namespace draftscope {

/// Opens libcupti once and never closes it. Sets `found.library` to its name. If it is missing, returns null
/// and sets `found` to the names tried and a remedy. `wanted` "" = environment variable DRAFTSCOPE_CUPTI,
/// then the default paths.
void* open_cupti(const std::string& wanted, CuptiProbe& found);
/// Returns CUPTI's description of an error code. `result_string` is null for older libraries.
std::string cupti_message(decltype(&cuptiGetResultString) result_string, int code);

}  // namespace draftscope
