#pragma once

#include <string>

#include "base/notes.h"
#include "base/result.h"

namespace draftscope {

/// Returns the path of a checkpoint that `option` names. An id of the hub such as "Qwen/Qwen3-0.6B" becomes
/// its snapshot in the local cache, which is a note. Expands "~/".
Result<std::string> find_checkpoint(const std::string& option, const std::string& given, Notes& notes);

}  // namespace draftscope
