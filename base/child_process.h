#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "base/result.h"

namespace draftscope {

/// Runs a program and passes each line of its stdout to `on_line`. The program inherits our stderr. While it
/// runs, `stop` is asked some ten times a second; once true, the program is terminated. Returns its exit
/// code, or 128 plus the signal that ended it. A program that cannot be started is bad_input.
Result<int> run_child_process(std::vector<std::string> words, FunctionRef<void(std::string_view)> on_line,
                              FunctionRef<bool()> stop);

}  // namespace draftscope
