#pragma once

#include <string>
#include <vector>

#include "app/jobs/commands.h"

namespace draftscope {

/// A field of the Session panel that a run can't start with.
struct Mistake {
    std::string field;    ///< its label; "" = of no single field
    std::string message;  ///< one line
};
/// Everything that is wrong with the config, each field once; empty when a run can start. Each mistake is
/// looked for with the fields found so far at their defaults.
std::vector<Mistake> find_mistakes(RunConfig config);

/// One mistake a line, after its field's label.
std::string to_text(const std::vector<Mistake>& mistakes);

}  // namespace draftscope
