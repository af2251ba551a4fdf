#pragma once

#include <string_view>

#include "engine/model/jinja/ast.h"

namespace draftscope::jinja {

/// The statements of a template. Throws a Failure that names the line of what it does not know: a tag, or
/// wrong syntax.
Block parse(std::string_view source);

}  // namespace draftscope::jinja
