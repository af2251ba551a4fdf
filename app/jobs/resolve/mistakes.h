#pragma once

#include <string>
#include <vector>

#include "app/jobs/commands/commands.h"

namespace draftscope {

/// A field of the Session panel whose value prevents a run.
struct Mistake {
    std::string field;    ///< its label; "" = not a single field
    std::string message;  ///< one line
};
/// Returns the mistakes of a config, at most one per field; empty if a run can start. After each mistake its
/// field is set to the default and the search continues.
std::vector<Mistake> find_mistakes(RunConfig config);

/// Returns one line per mistake: the field's label and the message.
std::string to_text(const std::vector<Mistake>& mistakes);

}  // namespace draftscope
