#pragma once

#include <string_view>

#include "engine/chat_template/value.h"

// The built-in filters, tests, methods and functions of Jinja, Python's types and Hugging Face's libraries
// that chat templates use.
namespace draftscope::jinja {

/// Applies a filter or test. An unknown name throws a Failure only when it is executed: templates may contain
/// filters for tool calls that no prompt reaches.
Value apply_filter(std::string_view name, const Value& subject, const Arguments& arguments);
bool apply_test(std::string_view name, const Value& subject, const Arguments& arguments);

/// Returns a method bound to a text, mapping or list; undefined if the type has no such method.
Value method_of(const Value& subject, std::string_view name);
/// Returns a field of a mapping, an item of a list or a character of a text; undefined if absent.
Value item_of(const Value& subject, const Value& key);
/// Evaluates `subject.name`: a method, or a field of a mapping. Throws a Failure if the subject is undefined.
Value attribute_of(const Value& subject, std::string_view name);
Value slice_of(const Value& subject, const Value& from, const Value& to, const Value& step);

/// Returns a global function: range, namespace, dict, raise_exception or strftime_now; undefined for other
/// names. strftime_now returns a fixed date (interpreter.h).
Value function_called(std::string_view name);

/// Python's str.strip, str.lstrip and str.rstrip; `characters` null = white space.
enum class Side { both, left, right };
std::string stripped(std::string_view text, const Value& characters, Side side);
std::string replaced(std::string_view text, std::string_view from, std::string_view to, std::int64_t most);

/// Upper limit on a text's length in bytes; chat templates do not produce longer texts.
constexpr std::size_t longest_text = std::size_t{64} << 20;
void check_length(std::size_t length);

}  // namespace draftscope::jinja
