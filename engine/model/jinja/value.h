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

/// What stops a template: a construct that is not known, or what the template itself raises. Thrown and
/// caught inside this folder; Template's functions return it as an Error.
struct Failure {
    std::string message;
};

template <typename... Pieces>
[[noreturn]] void fail(const Pieces&... pieces) {
    Failure failure;
    (failure.message.append(pieces), ...);
    throw failure;
}

/// A name that nothing was assigned to.
struct Undefined {
    std::string name;
};
struct None {};

/// Keys in the order in which they were added, as Python's.
struct Dict {
    std::vector<std::pair<Value, Value>> entries;  ///< keys are texts or numbers
    bool is_namespace = false;                     ///< its fields may be assigned to

    const Value* find(const Value& key) const;
    void set(const Value& key, Value value);
};

using Function = std::function<Value(const Arguments&)>;

/// A value of a template: Python's str, int, float, bool, None, list, dict, or a function. Lists and dicts
/// are shared, as Python's are.
class Value {
  public:
    Value() : held_(Undefined{}) {}
    Value(Undefined v) : held_(std::move(v)) {}
    Value(None v) : held_(v) {}
    Value(bool v) : held_(v) {}
    Value(std::int64_t v) : held_(v) {}
    Value(double v) : held_(v) {}
    Value(std::string v) : held_(std::move(v)) {}
    Value(std::string_view v) : held_(std::string(v)) {}
    Value(const char* v) : held_(std::string(v)) {}
    Value(List v) : held_(std::make_shared<List>(std::move(v))) {}
    Value(Dict v) : held_(std::make_shared<Dict>(std::move(v))) {}
    Value(Function v) : held_(std::make_shared<Function>(std::move(v))) {}

    bool is_undefined() const { return std::holds_alternative<Undefined>(held_); }
    bool is_none() const { return std::holds_alternative<None>(held_); }
    bool is_bool() const { return std::holds_alternative<bool>(held_); }
    bool is_int() const { return std::holds_alternative<std::int64_t>(held_); }
    bool is_float() const { return std::holds_alternative<double>(held_); }
    bool is_text() const { return std::holds_alternative<std::string>(held_); }
    bool is_list() const { return std::holds_alternative<std::shared_ptr<List>>(held_); }
    bool is_dict() const { return std::holds_alternative<std::shared_ptr<Dict>>(held_); }
    bool is_function() const { return std::holds_alternative<std::shared_ptr<Function>>(held_); }
    bool is_number() const { return is_bool() || is_int() || is_float(); }

    const std::string& text() const { return std::get<std::string>(held_); }
    List& list() const { return *std::get<std::shared_ptr<List>>(held_); }
    Dict& dict() const { return *std::get<std::shared_ptr<Dict>>(held_); }
    const Function& function() const { return *std::get<std::shared_ptr<Function>>(held_); }
    const std::string& undefined_name() const { return std::get<Undefined>(held_).name; }
    /// Of a bool, an int (also a float without a fraction); else a Failure that names `what`.
    std::int64_t integer(std::string_view what) const;
    double number() const;  ///< of a bool, int or float

    bool truth() const;
    std::string to_text() const;    ///< Python's str(); nothing for what is undefined
    std::string to_source() const;  ///< Python's repr()
    std::string_view type() const;  ///< for messages: "a list"

  private:
    std::variant<Undefined, None, bool, std::int64_t, double, std::string, std::shared_ptr<List>,
                 std::shared_ptr<Dict>, std::shared_ptr<Function>>
        held_;
};

/// Of a call, a filter or a test; a filter's subject is not among them.
struct Arguments {
    List places;
    std::vector<std::pair<std::string, Value>> names;

    /// The argument at `place` or called `name`; undefined when it is not given.
    Value get(std::size_t place, std::string_view name) const;
};

bool equal(const Value& a, const Value& b);
/// Of numbers and of texts; anything else is a Failure.
bool less(const Value& a, const Value& b);
bool contains(const Value& container, const Value& item);
/// What a `for` goes through: items, keys, characters; nothing for what is undefined.
List items_of(const Value& value);

/// Text is counted in characters, as Python counts it.
std::size_t text_length(std::string_view text);
/// Offsets of the characters of `text`, and its size at the end.
std::vector<std::size_t> character_offsets(std::string_view text);
/// Python's json.dumps without escapes for characters; `indent` < 0 = on one line.
std::string to_json(const Value& value, int indent, bool sort_keys);

}  // namespace draftscope::jinja
