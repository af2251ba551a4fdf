#pragma once

#include <string>

#include "engine/model/jinja/ast.h"

namespace draftscope::jinja {

/// What a template writes, given the values of its names. Throws a Failure that names the line.
/// `strftime_now` may be called but is not "defined", so that templates with a date of their own for programs
/// without a clock use it.
std::string interpret(const Block& program, const Dict& names);

}  // namespace draftscope::jinja
