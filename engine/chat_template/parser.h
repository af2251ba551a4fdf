#pragma once

#include <string_view>

#include "engine/chat_template/ast.h"

namespace draftscope::jinja {

/// Parses a template into statements. Throws a Failure that names the line of an unknown tag or a syntax
/// error.
Block parse(std::string_view source);

}  // namespace draftscope::jinja
