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
Value find_method(const Value& subject, std::string_view name);
/// Returns a field of a mapping, an item of a list or a character of a text; undefined if absent.
Value get_item(const Value& subject, const Value& key);
/// Evaluates `subject.name`: a method, or a field of a mapping. Throws a Failure if the subject is undefined.
Value get_attribute(const Value& subject, std::string_view name);
Value get_slice(const Value& subject, const Value& from, const Value& to, const Value& step);

/// Returns a global function: range, namespace, dict, raise_exception or strftime_now; undefined for other
/// names. strftime_now returns a fixed date (interpreter.h).
Value find_function(std::string_view name);

/// Python's str.strip, str.lstrip and str.rstrip; `characters` null = white space.
enum class Side { both, left, right };
std::string strip_text(std::string_view text, const Value& characters, Side side);
std::string replace_text(std::string_view text, std::string_view from, std::string_view to,
                         std::int64_t max_count);

/// Upper limit on a text's length in bytes; chat templates do not produce longer texts.
constexpr std::size_t max_text_bytes = std::size_t{64} << 20;
void check_length(std::size_t length);

}  // namespace draftscope::jinja
