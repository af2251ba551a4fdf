#pragma once

#include <string>

#include "engine/chat_template/ast.h"

namespace draftscope::jinja {

/// Renders a template with the given variables. Throws a Failure that names the line. strftime_now is
/// callable but not "defined", so that templates use their own fallback date.
std::string interpret(const Block& program, const Dict& names);

}  // namespace draftscope::jinja
