#pragma once

#include <string_view>

#include "engine/model/jinja/value.h"

// What Jinja, Python's types and Hugging Face's libraries bring along, as far as chat templates use it.
namespace draftscope::jinja {

/// A Failure where the name is not known: templates may have filters for tool calls that no prompt here
/// reaches.
Value apply_filter(std::string_view name, const Value& subject, const Arguments& arguments);
bool apply_test(std::string_view name, const Value& subject, const Arguments& arguments);

/// A method of a text, a mapping or a list, bound to it; undefined when its type has none of this name.
Value method_of(const Value& subject, std::string_view name);
/// The field of a mapping, the item of a list, the character of a text; undefined when there is none.
Value item_of(const Value& subject, const Value& key);
/// `subject.name`: a method, or the field of a mapping. A Failure when the subject itself is undefined.
Value attribute_of(const Value& subject, std::string_view name);
Value slice_of(const Value& subject, const Value& from, const Value& to, const Value& step);

/// range, namespace, dict, raise_exception, strftime_now; undefined for any other name. strftime_now knows
/// one date (interpreter.h).
Value function_called(std::string_view name);

/// Without what Python's str.strip(characters) takes away; `characters` null = white space.
enum class Side { both, left, right };
std::string stripped(std::string_view text, const Value& characters, Side side);
std::string replaced(std::string_view text, std::string_view from, std::string_view to, std::int64_t most);

/// Longer texts come from no chat template.
constexpr std::size_t longest_text = std::size_t{64} << 20;
void check_length(std::size_t length);

}  // namespace draftscope::jinja
