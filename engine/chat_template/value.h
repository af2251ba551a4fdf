#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace draftscope::jinja {

class Value;
struct Arguments;
using List = std::vector<Value>;

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

/// A name without a value.
struct Undefined {
    std::string name;
};
struct None {};

/// A mapping that keeps insertion order, as Python's dict.
struct Dict {
    std::vector<std::pair<Value, Value>> entries;  ///< keys are texts or numbers
    bool is_namespace = false;                     ///< fields may be assigned to

    const Value* find(const Value& key) const;
    void set(const Value& key, Value value);
};

using Function = std::function<Value(const Arguments&)>;

/// A template value: Python's str, int, float, bool, None, list, dict, or a function. Lists and dicts are
/// shared references, as in Python.
class Value {
  public:
    Value() : data_(Undefined{}) {}
    Value(Undefined v) : data_(std::move(v)) {}
    Value(None v) : data_(v) {}
    Value(bool v) : data_(v) {}
    Value(std::int64_t v) : data_(v) {}
    Value(double v) : data_(v) {}
    Value(std::string v) : data_(std::move(v)) {}
    Value(std::string_view v) : data_(std::string(v)) {}
    Value(const char* v) : data_(std::string(v)) {}
    Value(List v) : data_(std::make_shared<List>(std::move(v))) {}
    Value(Dict v) : data_(std::make_shared<Dict>(std::move(v))) {}
    Value(Function v) : data_(std::make_shared<Function>(std::move(v))) {}

    bool is_undefined() const { return std::holds_alternative<Undefined>(data_); }
    bool is_none() const { return std::holds_alternative<None>(data_); }
    bool is_bool() const { return std::holds_alternative<bool>(data_); }
    bool is_int() const { return std::holds_alternative<std::int64_t>(data_); }
    bool is_float() const { return std::holds_alternative<double>(data_); }
    bool is_text() const { return std::holds_alternative<std::string>(data_); }
    bool is_list() const { return std::holds_alternative<std::shared_ptr<List>>(data_); }
    bool is_dict() const { return std::holds_alternative<std::shared_ptr<Dict>>(data_); }
    bool is_function() const { return std::holds_alternative<std::shared_ptr<Function>>(data_); }
    bool is_number() const { return is_bool() || is_int() || is_float(); }

    const std::string& text() const { return std::get<std::string>(data_); }
    List& list() const { return *std::get<std::shared_ptr<List>>(data_); }
    Dict& dict() const { return *std::get<std::shared_ptr<Dict>>(data_); }
    const Function& function() const { return *std::get<std::shared_ptr<Function>>(data_); }
    const std::string& undefined_name() const { return std::get<Undefined>(data_).name; }
    /// Converts a bool, an int or a float without a fraction. Otherwise throws a Failure that names `what`.
    std::int64_t integer(std::string_view what) const;
    double number() const;  ///< converts a bool, int or float

    bool truth() const;
    std::string to_text() const;    ///< Python's str(); "" if undefined
    std::string_view type() const;  ///< for messages: "a list"

  private:
    std::variant<Undefined, None, bool, std::int64_t, double, std::string, std::shared_ptr<List>,
                 std::shared_ptr<Dict>, std::shared_ptr<Function>>
        data_;
};

/// Arguments of a call, filter or test, without a filter's subject.
struct Arguments {
    List positional;
    std::vector<std::pair<std::string, Value>> names;

    /// Returns the argument at `place` or with keyword `name`; undefined if not given.
    Value get(std::size_t position, std::string_view name) const;
};

bool equal(const Value& a, const Value& b);
/// Compares two numbers or two texts; otherwise throws a Failure.
bool less(const Value& a, const Value& b);
bool contains(const Value& container, const Value& item);
/// Returns the items that a `for` iterates over: list items, keys or characters; empty if undefined.
List to_items(const Value& value);

/// Returns the number of characters, as Python's len().
std::size_t text_length(std::string_view text);
/// Returns the byte offset of each character of `text`, followed by the size of `text`.
std::vector<std::size_t> character_offsets(std::string_view text);
/// Python's json.dumps with ensure_ascii=False; `indent` < 0 = one line.
std::string to_json(const Value& value, int indent, bool sort_keys);

}  // namespace draftscope::jinja
