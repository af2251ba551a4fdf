#include "engine/chat_template/value.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/utf8.h"

namespace draftscope::jinja {
namespace {

constexpr int max_value_depth = 100;
constexpr std::int64_t max_copy_cost = 1 << 20;

/// Formats a text as a Python literal.
std::string literal(std::string_view text) {
    const bool double_quotes =
        text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos;
    const char quote = double_quotes ? '"' : '\'';
    constexpr std::string_view controls = "\n\r\t", letters = "nrt";
    std::string out(1, quote);
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        if (c == quote || c == '\\')
            out.append({'\\', c});
        else if (const std::size_t found = controls.find(c); found != std::string_view::npos)
            out.append({'\\', letters[found]});
        else if (byte < 0x20 || byte == 0x7f)
            out += fmt::format("\\x{:02x}", byte);
        else
            out += c;
    }
    return out + quote;
}

/// Writes a value as Python's repr() or json.dumps() does.
struct Writer {
    static constexpr auto replace = nlohmann::json::error_handler_t::replace;
    bool json = false;
    int indent = -1;
    bool sort_keys = false;
    std::string out = {};

    void write(const Value& value, int depth = 0) {
        if (value.is_string()) {
            out +=
                json ? nlohmann::json(as_text(value)).dump(-1, ' ', false, replace) : literal(as_text(value));
        } else if (value.is_array()) {
            write_all(value.get_ref<const List&>(), "[]", depth,
                      [&](const Value& item) { write(item, depth + 1); });
        } else if (value.is_object()) {
            std::vector<std::pair<std::string_view, const Value*>> entries;
            for (const auto& [key, item] : value.get_ref<const Dict&>()) entries.emplace_back(key, &item);
            if (sort_keys) std::sort(entries.begin(), entries.end());
            write_all(entries, "{}", depth, [&](const auto& entry) {
                const Value key = from_key(entry.first);
                write(json ? Value(to_text(key)) : key);
                out += ": ";
                write(*entry.second, depth + 1);
            });
        } else if (json && (value.is_discarded() || value.is_binary())) {
            fail("tojson: ", type_name(value), " cannot be written");
        } else if (json && value.is_null()) {
            out += "null";
        } else if (json && value.is_boolean()) {
            out += truth(value) ? "true" : "false";
        } else {
            out += to_text(value);
        }
    }

  private:
    template <typename Items, typename Write>
    void write_all(const Items& items, const char* brackets, int depth, Write&& write_one) {
        const auto new_line = [&](int columns) {
            if (indent >= 0) out.append("\n").append(static_cast<std::size_t>(columns), ' ');
        };
        out += brackets[0];
        for (bool first = true; const auto& item : items) {
            if (!std::exchange(first, false)) out += indent < 0 ? ", " : ",";
            new_line(indent * (depth + 1));
            write_one(item);
        }
        if (!items.empty()) new_line(indent * depth);
        out += brackets[1];
    }
};

std::shared_ptr<Handle> handle_of(const Value& value) {
    if (value.is_binary()) return value.get_binary();
    return nullptr;
}

}  // namespace

const Value& Arguments::get(std::size_t position, std::string_view name) const {
    if (position < positional.size()) return positional[position];
    for (const auto& [given, value] : names) {
        if (given == name) return value;
    }
    return undefined;
}

const std::string& Arguments::text(std::size_t position, std::string_view name) const {
    const Value& found = get(position, name);
    if (!found.is_string()) fail("argument '", name, "' is ", type_name(found), ", expected a string");
    return as_text(found);
}

std::int64_t Arguments::integer(std::size_t position, std::string_view name, std::int64_t otherwise) const {
    const Value& found = get(position, name);
    return is_given(found) ? to_integer(found, name) : otherwise;
}

Value make_function(Function function) {
    return Value::binary(std::make_shared<Handle>(Handle{std::move(function), {}}));
}

std::shared_ptr<Handle> function_of(const Value& value) {
    const auto handle = handle_of(value);
    return handle != nullptr && handle->call ? handle : nullptr;
}

std::shared_ptr<Handle> namespace_of(const Value& value) {
    const auto handle = handle_of(value);
    return handle != nullptr && !handle->call ? handle : nullptr;
}

void check_length(std::size_t length) {
    if (length > max_text_bytes) fail("a string is longer than 64 MiB");
}

std::int64_t copy_cost(const Value& value, int depth) {
    if (depth > max_value_depth) fail("a value is nested too deeply");
    std::int64_t out = 1;
    if (value.is_string()) out += static_cast<std::int64_t>(as_text(value).size() / 512);
    if (value.is_structured()) {
        for (const Value& item : value) {
            out += copy_cost(item, depth + 1);
            if (out > max_copy_cost) fail("a value is too large");
        }
    }
    return out;
}

std::int64_t to_integer(const Value& value, std::string_view what) {
    if (value.is_boolean()) return value.get<bool>() ? 1 : 0;
    if (value.is_number_integer()) return value.get<std::int64_t>();
    if (value.is_number_float()) {
        const double number = value.get<double>();
        if (number == std::floor(number) && std::abs(number) < 1e15) return static_cast<std::int64_t>(number);
    }
    fail(what, " is ", type_name(value), ", expected a whole number");
}

double to_number(const Value& value) {
    if (value.is_boolean()) return value.get<bool>() ? 1 : 0;
    if (!value.is_number()) fail(type_name(value), " is used as a number");
    return value.get<double>();
}

bool truth(const Value& value) {
    if (is_number(value)) return to_number(value) != 0;
    if (value.is_string()) return !as_text(value).empty();
    return !value.is_discarded() && !value.empty();
}

std::string to_text(const Value& value) {
    if (value.is_string()) return as_text(value);
    if (value.is_discarded()) return "";
    if (value.is_null()) return "None";
    if (value.is_boolean()) return truth(value) ? "True" : "False";
    if (value.is_number_integer()) return std::to_string(value.get<std::int64_t>());
    if (value.is_number_float()) {
        std::string out = fmt::format("{}", value.get<double>());
        return out.find_first_of(".einf") != std::string::npos ? out : out + ".0";
    }
    if (value.is_binary()) return function_of(value) != nullptr ? "<function>" : "<namespace>";
    Writer writer;
    writer.write(value);
    return std::move(writer.out);
}

std::string_view type_name(const Value& value) {
    constexpr std::string_view names[] = {"none",       "a mapping",  "a list",   "a string",   "a boolean",
                                          "an integer", "an integer", "a number", "a function", "undefined"};
    return namespace_of(value) != nullptr ? "a namespace" : names[static_cast<int>(value.type())];
}

std::string to_key(const Value& value) {
    if (value.is_string()) return as_text(value);
    if (!is_number(value)) fail(type_name(value), " cannot be a key of a mapping");
    const bool fraction = std::floor(to_number(value)) != to_number(value);
    return '\0' + to_text(fraction ? value : Value(to_integer(value, "a key")));
}

Value from_key(std::string_view key) {
    return key.starts_with('\0') ? Value::parse(key.substr(1), nullptr, false) : Value(key);
}

bool equal(const Value& a, const Value& b) {
    if (is_number(a) && is_number(b)) return to_number(a) == to_number(b);
    if (a.type() != b.type()) return false;
    if (a.is_array()) return std::equal(a.begin(), a.end(), b.begin(), b.end(), equal);
    if (a.is_object()) {
        const Dict& entries = a.get_ref<const Dict&>();
        return a.size() == b.size() && std::all_of(entries.begin(), entries.end(), [&](const auto& entry) {
                   const auto other = b.find(entry.first);
                   return other != b.end() && equal(entry.second, *other);
               });
    }
    return a.is_discarded() || a == b;
}

bool less(const Value& a, const Value& b) {
    if (is_number(a) && is_number(b)) return to_number(a) < to_number(b);
    if (a.is_string() && b.is_string()) return as_text(a) < as_text(b);
    fail(type_name(a), " and ", type_name(b), " cannot be compared");
}

bool contains(const Value& container, const Value& item) {
    if (container.is_string()) {
        if (!item.is_string()) fail(type_name(item), " is searched in a string");
        return as_text(container).find(as_text(item)) != std::string::npos;
    }
    Value held;
    if (container.is_object()) return !is_undefined(get_item(container, item, held));
    if (container.is_discarded()) return false;
    if (!container.is_array()) fail(type_name(container), " is not iterable");
    return std::any_of(container.begin(), container.end(), [&](const Value& v) { return equal(v, item); });
}

List to_items(const Value& value) {
    if (value.is_array()) return value.get_ref<const List&>();
    List out;
    if (value.is_object()) {
        for (const auto& entry : value.get_ref<const Dict&>()) out.push_back(from_key(entry.first));
    } else if (value.is_string()) {
        for (const std::string_view one : characters(as_text(value))) out.emplace_back(one);
    } else if (!value.is_discarded()) {
        fail(type_name(value), " is not iterable");
    }
    return out;
}

std::string join(const Value& items, std::string_view between) {
    std::string out;
    for (bool first = true; const Value& item : to_items(items)) {
        if (!std::exchange(first, false)) out += between;
        out += to_text(item);
        check_length(out.size());
    }
    return out;
}

std::vector<std::string_view> characters(std::string_view text) {
    std::vector<std::string_view> out;
    for (; !text.empty(); text.remove_prefix(out.back().size()))
        out.push_back(text.substr(0, next_utf8(text).length));
    return out;
}

std::string to_json(const Value& value, int indent, bool sort_keys) {
    Writer writer{true, indent, sort_keys};
    writer.write(value);
    return std::move(writer.out);
}

const Value& get_field(const Value& subject, const std::string& name, Value& held) {
    const auto space = namespace_of(subject);
    const Value& fields = space != nullptr ? space->fields : subject;
    const auto found = fields.is_object() ? fields.find(name) : fields.end();
    if (found != fields.end()) return *found;
    return held = undefined;
}

const Value& get_item(const Value& subject, const Value& key, Value& held) {
    if (is_undefined(subject)) fail("an undefined value has no '", to_text(key), "'");
    const bool is_sequence = subject.is_array() || subject.is_string();
    if (is_sequence ? !key.is_number_integer() : !key.is_string() && !is_number(key)) return held = undefined;
    if (!is_sequence) return get_field(subject, to_key(key), held);
    const auto find = [&](const auto& items) {
        const auto at = key.get<std::int64_t>(), size = static_cast<std::int64_t>(items.size());
        return at >= -size && at < size ? &items[static_cast<std::size_t>(at < 0 ? at + size : at)] : nullptr;
    };
    if (subject.is_array()) {
        const Value* const item = find(subject.get_ref<const List&>());
        if (item != nullptr) return *item;
        return held = undefined;
    }
    const auto all = characters(as_text(subject));
    const std::string_view* const one = find(all);
    return held = one != nullptr ? Value(*one) : undefined;
}

Value get_slice(const Value& subject, const Value& from, const Value& to, const Value& step) {
    if (!subject.is_array() && !subject.is_string()) fail(type_name(subject), " cannot be sliced");
    const List items = to_items(subject);
    const auto size = static_cast<std::int64_t>(items.size());
    const std::int64_t stride = is_given(step) ? to_integer(step, "a slice") : 1;
    if (stride == 0) fail("a slice has step 0");
    const std::int64_t lower = stride > 0 ? 0 : -1, upper = stride > 0 ? size : size - 1;
    const auto bound = [&](const Value& value, std::int64_t otherwise) {
        if (!is_given(value)) return otherwise;
        const std::int64_t at = to_integer(value, "a slice");
        return std::clamp(at < 0 ? at + size : at, lower, upper);
    };
    const std::int64_t begin = bound(from, stride > 0 ? lower : upper),
                       end = bound(to, stride > 0 ? upper : lower);
    Value out = List{};
    // Clamp, so that a stride past either end does not wrap around.
    const std::int64_t hop = std::clamp(stride, -size - 1, size + 1);
    for (std::int64_t i = begin; hop > 0 ? i < end : i > end; i += hop)
        out.push_back(items[static_cast<std::size_t>(i)]);
    return subject.is_string() ? Value(join(out, "")) : out;
}

}  // namespace draftscope::jinja
