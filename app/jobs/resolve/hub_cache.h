#pragma once

#include <string>

#include "base/notes.h"
#include "base/result.h"

namespace draftscope {

/// Returns the path of a checkpoint that `option` names: an existing path, or the snapshot in the local cache
/// of a hub's id such as "Qwen/Qwen3-0.6B", which is a note. Expands "~/".
Result<std::string> find_checkpoint(const std::string& option, const std::string& given, Notes& notes);

}  // namespace draftscope
