#pragma once

#include <cstdint>
#include <ctime>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace draftscope::jinja {

struct Handle;

/// A template value is a JSON value. What JSON lacks is a `binary` value, the handle of a function or
/// namespace, or `discarded`, which is undefined.
using Value =
    nlohmann::basic_json<nlohmann::ordered_map, std::vector, std::string, bool, std::int64_t, std::uint64_t,
                         double, std::allocator, nlohmann::adl_serializer, std::shared_ptr<Handle>>;
using List = Value::array_t;
using Dict = Value::object_t;
inline const Value undefined(Value::value_t::discarded);

/// Arguments of a call, filter or test, without a filter's subject.
struct Arguments {
    List positional;
    std::vector<std::pair<std::string, Value>> names;

    /// Returns the argument at `position` or with keyword `name`; undefined if not given.
    const Value& get(std::size_t position, std::string_view name) const;
    /// Returns a required text argument.
    const std::string& text(std::size_t position, std::string_view name) const;
    /// Returns a whole number; `otherwise` if not given or none.
    std::int64_t integer(std::size_t position, std::string_view name, std::int64_t otherwise) const;
};

using Function = std::function<Value(const Arguments&)>;

/// A function, or the fields of a namespace. Copies of a value share it.
struct Handle {
    Function call;  ///< empty for a namespace
    Value fields;
};
Value make_function(Function function);
/// Return null for other values.
std::shared_ptr<Handle> function_of(const Value& value);
std::shared_ptr<Handle> namespace_of(const Value& value);

/// The exception that stops a template: an unsupported construct, or an error raised by the template. Thrown
/// and caught inside this folder; Template's functions return it as an Error.
struct Failure {
    std::string message;
};

template <typename... Pieces>
[[noreturn]] void fail(const Pieces&... pieces) {
    Failure failure;
    (failure.message.append(pieces), ...);
    throw failure;
}

/// Upper limit on a text's length in bytes; chat templates do not produce longer texts.
constexpr std::size_t max_text_bytes = std::size_t{64} << 20;
void check_length(std::size_t length);
/// Counts the values that copying `value` makes; a text counts once per 512 bytes. A value that is nested too
/// deeply or too large is a Failure.
std::int64_t copy_cost(const Value& value, int depth = 0);

inline bool is_undefined(const Value& value) {
    return value.is_discarded();
}
inline bool is_given(const Value& value) {
    return !value.is_discarded() && !value.is_null();
}
inline bool is_number(const Value& value) {
    return value.is_number() || value.is_boolean();
}
inline const std::string& as_text(const Value& value) {
    return value.get_ref<const std::string&>();
}
/// Converts a bool, an int or a float without a fraction. Otherwise throws a Failure that names `what`.
std::int64_t to_integer(const Value& value, std::string_view what);
double to_number(const Value& value);  ///< converts a bool, int or float
bool truth(const Value& value);
std::string to_text(const Value& value);         ///< Python's str(); "" if undefined
std::string_view type_name(const Value& value);  ///< for messages: "a list"
/// Mappings keep the order of their keys. JSON has texts as keys only; a number is stored behind a zero byte.
std::string to_key(const Value& value);
Value from_key(std::string_view key);
bool equal(const Value& a, const Value& b);  ///< as in Python: 1 == 1.0 == True
bool less(const Value& a, const Value& b);   ///< two numbers or two texts; otherwise throws a Failure
bool contains(const Value& container, const Value& item);
/// Returns the items that a `for` iterates over: list items, keys or characters; empty if undefined.
List to_items(const Value& value);
std::string join(const Value& items, std::string_view between);
std::vector<std::string_view> characters(std::string_view text);
/// Python's json.dumps with ensure_ascii=False; `indent` < 0 = one line.
std::string to_json(const Value& value, int indent, bool sort_keys);

/// Return a field of a mapping or namespace; also an item of a list or a character of a text. The reference
/// is to a part of `subject` or to `held`; undefined if absent.
const Value& get_field(const Value& subject, const std::string& name, Value& held);
const Value& get_item(const Value& subject, const Value& key, Value& held);
Value get_slice(const Value& subject, const Value& from, const Value& to, const Value& step);

// The operators, filters, tests, methods and functions that chat templates use, one table each. They are
// those of Jinja, of Python's types and of Hugging Face's libraries.
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
