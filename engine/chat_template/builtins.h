#pragma once

#include <ctime>
#include <string_view>

#include "engine/chat_template/value.h"

// The operators, filters, tests, methods and functions that chat templates use, one table each. They are
// those of Jinja, of Python's types and of Hugging Face's libraries.
namespace draftscope::jinja {

using Builtin = Value (*)(const Value& subject, const Arguments& arguments);

/// An unknown name throws a Failure when it is executed. Templates may contain filters for tool calls that no
/// prompt reaches. Tests return a boolean.
Builtin find_filter(std::string_view name);
Builtin find_test(std::string_view name);
/// Returns an operator of the parser; the arguments of a binary one hold its right side.
Builtin find_operator(std::string_view name);

/// Returns a method of a text, mapping or list; null if the type has no such method. Methods of texts use the
/// text of any other subject.
Builtin find_method(Value::value_t type, std::string_view name);
/// Returns a global function, which ignores its subject; null if unknown. They are range, namespace, dict,
/// raise_exception and strftime_now, which returns a fixed date.
Builtin find_function(std::string_view name);
/// Returns what strftime_now(format) writes on a day.
Value format_date(const std::tm& date, const Arguments& arguments);

}  // namespace draftscope::jinja
