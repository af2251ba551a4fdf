#include "engine/chat_template/value.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/utf8.h"

namespace draftscope::jinja {
namespace {

constexpr int max_value_depth = 100;

std::string float_text(double value) {
    if (std::isnan(value)) return "nan";
    if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
    std::string out = fmt::format("{}", value);
    if (out.find_first_of(".e") == std::string::npos) out += ".0";
    return out;
}

/// Formats a text as a Python literal.
std::string quoted(std::string_view text) {
    const bool double_quotes =
        text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos;
    const char quote = double_quotes ? '"' : '\'';
    std::string out(1, quote);
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        if (c == quote || c == '\\')
            out.append({'\\', c});
        else if (c == '\n')
            out += "\\n";
        else if (c == '\r')
            out += "\\r";
        else if (c == '\t')
            out += "\\t";
        else if (byte < 0x20 || byte == 0x7f)
            out += fmt::format("\\x{:02x}", byte);
        else
            out += c;
    }
    return out + quote;
}

std::string json_text(std::string_view text) {
    std::string out = "\"";
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        switch (c) {
            case '"':
                out += "\\\"";
                break;
            case '\\':
                out += "\\\\";
                break;
            case '\n':
                out += "\\n";
                break;
            case '\r':
                out += "\\r";
                break;
            case '\t':
                out += "\\t";
                break;
            case '\b':
                out += "\\b";
                break;
            case '\f':
                out += "\\f";
                break;
            default:
                if (byte < 0x20)
                    out += fmt::format("\\u{:04x}", byte);
                else
                    out += c;
        }
    }
    return out + "\"";
}

std::string format_repr(const Value& value, int depth) {
    if (depth > max_value_depth) return "...";
    if (value.is_text()) return quoted(value.text());
    if (value.is_list()) {
        std::string out = "[";
        for (const Value& item : value.list()) {
            if (out.size() > 1) out += ", ";
            out += format_repr(item, depth + 1);
        }
        return out + "]";
    }
    if (value.is_dict()) {
        std::string out = "{";
        for (const auto& [key, item] : value.dict().entries) {
            if (out.size() > 1) out += ", ";
            out += format_repr(key, depth + 1) + ": " + format_repr(item, depth + 1);
        }
        return out + "}";
    }
    return value.to_text();
}

class JsonWriter {
  public:
    JsonWriter(int indent, bool sort_keys) : indent_(indent), sort_keys_(sort_keys) {}

    void write(const Value& value, int depth) {
        if (depth > max_value_depth) fail("tojson: the value is nested too deeply");
        if (value.is_text()) {
            out += json_text(value.text());
        } else if (value.is_none()) {
            out += "null";
        } else if (value.is_bool()) {
            out += value.truth() ? "true" : "false";
        } else if (value.is_number()) {
            out += value.to_text();
        } else if (value.is_list()) {
            write_all(value.list(), "[]", depth, [&](const Value& item) { write(item, depth + 1); });
        } else if (value.is_dict()) {
            auto entries = value.dict().entries;
            if (sort_keys_)
                std::sort(entries.begin(), entries.end(),
                          [](const auto& a, const auto& b) { return less(a.first, b.first); });
            write_all(entries, "{}", depth, [&](const auto& entry) {
                out += json_text(entry.first.to_text()) + ": ";
                write(entry.second, depth + 1);
            });
        } else {
            fail("tojson: ", value.type(), " cannot be written");
        }
    }

    std::string out;

  private:
    template <typename Items, typename Write>
    void write_all(const Items& items, const char* brackets, int depth, Write&& write_one) {
        out += brackets[0];
        bool first = true;
        for (const auto& item : items) {
            if (!first) out += indent_ < 0 ? ", " : ",";
            new_line(depth + 1);
            write_one(item);
            first = false;
        }
        if (!first) new_line(depth);
        out += brackets[1];
    }
    void new_line(int depth) {
        if (indent_ >= 0) out.append("\n").append(indent_ * depth, ' ');
    }

    int indent_;
    bool sort_keys_;
};

}  // namespace

const Value* Dict::find(const Value& key) const {
    for (const auto& [name, value] : entries) {
        if (equal(name, key)) return &value;
    }
    return nullptr;
}

void Dict::set(const Value& key, Value value) {
    if (!key.is_text() && !key.is_number()) fail(key.type(), " cannot be a key of a mapping");
    for (auto& [name, held] : entries) {
        if (!equal(name, key)) continue;
        held = std::move(value);
        return;
    }
    entries.emplace_back(key, std::move(value));
}

std::int64_t Value::integer(std::string_view what) const {
    if (is_bool()) return std::get<bool>(data_) ? 1 : 0;
    if (is_int()) return std::get<std::int64_t>(data_);
    if (is_float()) {
        const double value = std::get<double>(data_);
        if (value == std::floor(value) && std::abs(value) < 1e15) return static_cast<std::int64_t>(value);
    }
    fail(what, " is ", type(), ", expected a whole number");
}

double Value::number() const {
    if (is_bool()) return std::get<bool>(data_) ? 1 : 0;
    if (is_int()) return static_cast<double>(std::get<std::int64_t>(data_));
    if (is_float()) return std::get<double>(data_);
    fail(type(), " is used as a number");
}

bool Value::truth() const {
    if (is_undefined() || is_none()) return false;
    if (is_number()) return number() != 0;
    if (is_text()) return !text().empty();
    if (is_list()) return !list().empty();
    if (is_dict()) return dict().is_namespace || !dict().entries.empty();
    return true;
}

std::string Value::to_text() const {
    if (is_undefined()) return "";
    if (is_none()) return "None";
    if (is_bool()) return truth() ? "True" : "False";
    if (is_int()) return fmt::format("{}", std::get<std::int64_t>(data_));
    if (is_float()) return float_text(std::get<double>(data_));
    if (is_text()) return text();
    if (is_function()) return "<function>";
    return format_repr(*this, 0);
}

std::string_view Value::type() const {
    constexpr std::string_view names[] = {"undefined", "none",   "a boolean", "an integer", "a number",
                                          "a string",  "a list", "a mapping", "a function"};
    return names[data_.index()];
}

Value Arguments::get(std::size_t position, std::string_view name) const {
    if (position < positional.size()) return positional[position];
    for (const auto& [given, value] : names) {
        if (given == name) return value;
    }
    return {};
}

bool equal(const Value& a, const Value& b) {
    if (a.is_number() && b.is_number()) return a.number() == b.number();
    if (a.is_text() && b.is_text()) return a.text() == b.text();
    if (a.is_list() && b.is_list())
        return std::equal(a.list().begin(), a.list().end(), b.list().begin(), b.list().end(), equal);
    if (a.is_dict() && b.is_dict()) {
        const Dict &left = a.dict(), &right = b.dict();
        if (&left == &right) return true;
        return left.entries.size() == right.entries.size() &&
               std::all_of(left.entries.begin(), left.entries.end(), [&](const auto& entry) {
                   const Value* other = right.find(entry.first);
                   return other != nullptr && equal(entry.second, *other);
               });
    }
    return (a.is_none() && b.is_none()) || (a.is_undefined() && b.is_undefined());
}

bool less(const Value& a, const Value& b) {
    if (a.is_number() && b.is_number()) return a.number() < b.number();
    if (a.is_text() && b.is_text()) return a.text() < b.text();
    fail(a.type(), " and ", b.type(), " cannot be compared");
}

bool contains(const Value& container, const Value& item) {
    if (container.is_text()) {
        if (!item.is_text()) fail(item.type(), " is searched in a string");
        return container.text().find(item.text()) != std::string::npos;
    }
    if (container.is_dict()) return container.dict().find(item) != nullptr;
    const List items = to_items(container);
    return std::any_of(items.begin(), items.end(), [&](const Value& other) { return equal(other, item); });
}

List to_items(const Value& value) {
    if (value.is_undefined()) return {};
    if (value.is_list()) return value.list();
    List out;
    if (value.is_dict()) {
        for (const auto& entry : value.dict().entries) out.push_back(entry.first);
        return out;
    }
    if (value.is_text()) {
        const std::vector<std::size_t> at = character_offsets(value.text());
        for (std::size_t i = 0; i + 1 < at.size(); ++i)
            out.emplace_back(value.text().substr(at[i], at[i + 1] - at[i]));
        return out;
    }
    fail(value.type(), " is not iterable");
}

std::vector<std::size_t> character_offsets(std::string_view text) {
    std::vector<std::size_t> out;
    for (std::size_t at = 0; at < text.size(); at += next_utf8(text.substr(at)).length) out.push_back(at);
    out.push_back(text.size());
    return out;
}

std::size_t text_length(std::string_view text) {
    return character_offsets(text).size() - 1;
}

std::string to_json(const Value& value, int indent, bool sort_keys) {
    JsonWriter writer(indent, sort_keys);
    writer.write(value, 0);
    return std::move(writer.out);
}

}  // namespace draftscope::jinja
