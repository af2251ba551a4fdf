#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <ctime>
#include <limits>

#include "base/utf8.h"
#include "engine/chat_template/builtins.h"

namespace draftscope::jinja {
namespace {

constexpr std::int64_t max_range_items = 100000;  // as in Jinja's sandbox

/// White space as Python's str.strip() removes it.
bool is_space(char32_t c) {
    return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
           c == 0x3000;
}

const std::string& text_argument(const Arguments& arguments, std::size_t position, std::string_view name) {
    static const std::string nothing;
    if (position < arguments.positional.size() && arguments.positional[position].is_text())
        return arguments.positional[position].text();
    for (const auto& [given, value] : arguments.names) {
        if (given == name && value.is_text()) return value.text();
    }
    if (position < arguments.positional.size())
        fail("argument ", std::to_string(position + 1), " is ", arguments.positional[position].type(),
             ", expected a string");
    fail("argument '", name, "' is missing");
}

enum class Case { upper, lower, title, capitalised };

std::string in_case(std::string_view text, Case wanted) {
    std::string out;
    bool inside = false;  // inside a word (or the text)
    for (std::size_t at = 0; at < text.size();) {
        const Utf8Unit unit = next_utf8(text.substr(at));
        if (unit.kind != Utf8Unit::Kind::character) {
            out.append(text.substr(at, unit.length));
        } else {
            const auto c = static_cast<utf8proc_int32_t>(unit.character);
            const bool upper = wanted == Case::upper || (wanted != Case::lower && !inside);
            append_utf8(static_cast<char32_t>(upper ? utf8proc_toupper(c) : utf8proc_tolower(c)), out);
            const utf8proc_category_t category = utf8proc_category(c);
            const bool letter = category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
            inside = wanted == Case::capitalised || letter;
        }
        at += unit.length;
    }
    return out;
}

/// str.split and str.rsplit.
List split(const std::string& text, const Arguments& arguments, bool from_right) {
    const Value separator = arguments.get(0, "sep"), max_count = arguments.get(1, "maxsplit");
    std::int64_t left = max_count.is_undefined() ? -1 : max_count.integer("maxsplit");
    if (left < 0) left = std::numeric_limits<std::int64_t>::max();
    List out;
    if (separator.is_undefined() || separator.is_none()) {
        if (from_right && !max_count.is_undefined())
            fail("rsplit without a separator is not supported by this version");
        std::string rest = strip_text(text, Value(), Side::left);
        while (!rest.empty()) {
            const std::vector<std::size_t> at = character_offsets(rest);
            std::size_t end = 0;
            while (end + 1 < at.size() &&
                   !is_space(next_utf8(std::string_view(rest).substr(at[end])).character))
                ++end;
            if (left-- == 0) end = at.size() - 1;
            out.emplace_back(rest.substr(0, at[end]));
            rest = strip_text(std::string_view(rest).substr(at[end]), Value(), Side::left);
        }
        return out;
    }
    if (!separator.is_text() || separator.text().empty())
        fail("split: the separator is empty or not a string");
    const std::string& mark = separator.text();
    std::vector<std::size_t> cuts;
    if (from_right) {
        for (std::size_t end = text.size(); end >= mark.size() && left > 0; --left) {
            const std::size_t cut = text.rfind(mark, end - mark.size());
            if (cut == std::string::npos) break;
            cuts.insert(cuts.begin(), cut);
            end = cut;
        }
    } else {
        for (std::size_t cut = text.find(mark); cut != std::string::npos && left > 0; --left) {
            cuts.push_back(cut);
            cut = text.find(mark, cut + mark.size());
        }
    }
    std::size_t begin = 0;
    for (const std::size_t cut : cuts) {
        out.emplace_back(text.substr(begin, cut - begin));
        begin = cut + mark.size();
    }
    out.emplace_back(text.substr(begin));
    return out;
}

List lines(const std::string& text, bool keep_ends) {
    List out;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = std::min(text.find_first_of("\n\r\v\f", at), text.size());
        std::size_t next = std::min(end + 1, text.size());
        if (text.compare(end, 2, "\r\n") == 0) next = end + 2;
        out.emplace_back(text.substr(at, (keep_ends ? next : end) - at));
        at = next;
    }
    return out;
}

/// str.startswith and str.endswith, with a text or a list of texts.
bool edge(const std::string& text, const Arguments& arguments, bool start) {
    const Value given = arguments.get(0, "prefix");
    for (const Value& item : given.is_list() ? given.list() : List{given}) {
        if (!item.is_text()) fail("startswith and endswith expect a string");
        if (start ? text.starts_with(item.text()) : text.ends_with(item.text())) return true;
    }
    return false;
}

std::string joined(const std::string& between, const Value& items) {
    std::string out;
    bool first = true;
    for (const Value& item : to_items(items)) {
        if (!item.is_text()) fail("join: ", item.type(), " is not a string");
        if (!std::exchange(first, false)) out += between;
        out += item.text();
        check_length(out.size());
    }
    return out;
}

/// str.format with `{}`, `{0}` and `{name}`; other forms are errors.
std::string formatted(const std::string& text, const Arguments& arguments) {
    std::string out;
    std::size_t next = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        const bool twice = i + 1 < text.size() && text[i + 1] == c;
        if ((c != '{' && c != '}') || twice) {
            out += c;
            i += (c == '{' || c == '}') ? 1 : 0;
            continue;
        }
        const std::size_t end = text.find('}', i);
        if (c == '}' || end == std::string::npos) fail("format: unmatched brace");
        const std::string field = text.substr(i + 1, end - i - 1);
        if (field.find_first_of(":!.[") != std::string::npos)
            fail("format: '{", field, "}' is not supported by this version");
        const bool digits = field.find_first_not_of("0123456789") == std::string::npos && field.size() < 6;
        const std::size_t position = field.empty() ? next++
                                     : digits      ? std::stoul(field)
                                                   : arguments.positional.size();
        const Value value = arguments.get(position, field);
        if (value.is_undefined()) fail("format: no argument for '{", field, "}'");
        out += value.to_text();
        check_length(out.size());
        i = end;
    }
    return out;
}

std::int64_t count_text(const std::string& text, const std::string& part) {
    if (part.empty()) return static_cast<std::int64_t>(text_length(text)) + 1;
    std::int64_t out = 0;
    for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size()))
        ++out;
    return out;
}

bool all_digits(const std::string& text) {
    return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
}

bool all_spaces(std::string_view text) {
    return !text.empty() && strip_text(text, Value(), Side::both).empty();
}

std::int64_t character_index(const std::string& text, std::size_t offset) {
    if (offset == std::string::npos) return -1;
    return static_cast<std::int64_t>(text_length(std::string_view(text).substr(0, offset)));
}

Value text_method(const std::string& text, std::string_view name) {
    using A = const Arguments&;
    const auto strip = [&](Side side) {
        return Value(
            Function([text, side](A a) { return Value(strip_text(text, a.get(0, "chars"), side)); }));
    };
    if (name == "strip") return strip(Side::both);
    if (name == "lstrip") return strip(Side::left);
    if (name == "rstrip") return strip(Side::right);
    if (name == "split" || name == "rsplit") {
        const bool right = name == "rsplit";
        return Function([text, right](A a) { return Value(split(text, a, right)); });
    }
    if (name == "splitlines")
        return Function([text](A a) { return Value(lines(text, a.get(0, "keepends").truth())); });
    if (name == "startswith") return Function([text](A a) { return Value(edge(text, a, true)); });
    if (name == "endswith") return Function([text](A a) { return Value(edge(text, a, false)); });
    if (name == "upper") return Function([text](A) { return Value(in_case(text, Case::upper)); });
    if (name == "lower") return Function([text](A) { return Value(in_case(text, Case::lower)); });
    if (name == "title") return Function([text](A) { return Value(in_case(text, Case::title)); });
    if (name == "capitalize") return Function([text](A) { return Value(in_case(text, Case::capitalised)); });
    if (name == "replace") {
        return Function([text](A a) {
            const Value max_count = a.get(2, "count");
            return Value(replace_text(
                text, text_argument(a, 0, "old"), text_argument(a, 1, "new"),
                max_count.is_undefined() || max_count.is_none() ? -1 : max_count.integer("count")));
        });
    }
    if (name == "join") return Function([text](A a) { return Value(joined(text, a.get(0, "iterable"))); });
    if (name == "format") return Function([text](A a) { return Value(formatted(text, a)); });
    if (name == "find")
        return Function(
            [text](A a) { return Value(character_index(text, text.find(text_argument(a, 0, "sub")))); });
    if (name == "rfind")
        return Function(
            [text](A a) { return Value(character_index(text, text.rfind(text_argument(a, 0, "sub")))); });
    if (name == "count")
        return Function([text](A a) { return Value(count_text(text, text_argument(a, 0, "sub"))); });
    if (name == "isdigit") return Function([text](A) { return Value(all_digits(text)); });
    if (name == "isspace") return Function([text](A) { return Value(all_spaces(text)); });
    if (name == "removeprefix") {
        return Function([text](A a) {
            const std::string& mark = text_argument(a, 0, "prefix");
            return Value(text.starts_with(mark) ? text.substr(mark.size()) : text);
        });
    }
    if (name == "removesuffix") {
        return Function([text](A a) {
            const std::string& mark = text_argument(a, 0, "suffix");
            return Value(text.ends_with(mark) ? text.substr(0, text.size() - mark.size()) : text);
        });
    }
    return {};
}

Value dict_method(const Value& subject, std::string_view name) {
    if (name == "items")
        return Function([subject](const Arguments&) { return apply_filter("items", subject, {}); });
    if (name == "keys") return Function([subject](const Arguments&) { return Value(to_items(subject)); });
    if (name == "values") {
        return Function([subject](const Arguments&) {
            List out;
            for (const auto& entry : subject.dict().entries) out.push_back(entry.second);
            return Value(std::move(out));
        });
    }
    if (name == "get") {
        return Function([subject](const Arguments& arguments) {
            const Value* found = subject.dict().find(arguments.get(0, "key"));
            if (found != nullptr) return *found;
            const Value other = arguments.get(1, "default");
            return other.is_undefined() ? Value(None{}) : other;
        });
    }
    return {};
}

/// In Jinja's sandbox, as Hugging Face configures it, templates cannot modify lists.
Value list_method(const Value& subject, std::string_view name) {
    if (name == "index") {
        return Function([subject](const Arguments& arguments) {
            const List& items = subject.list();
            for (std::size_t i = 0; i < items.size(); ++i) {
                if (equal(items[i], arguments.get(0, "value"))) return Value(static_cast<std::int64_t>(i));
            }
            fail("index: the list has no such item");
        });
    }
    if (name == "count") {
        return Function([subject](const Arguments& arguments) {
            const Value wanted = arguments.get(0, "value");
            std::int64_t out = 0;
            for (const Value& item : subject.list()) out += equal(item, wanted) ? 1 : 0;
            return Value(out);
        });
    }
    return {};
}

Value range(const Arguments& arguments) {
    const bool two = arguments.positional.size() > 1;
    const std::int64_t begin = two ? arguments.positional[0].integer("range") : 0;
    const std::int64_t end = arguments.get(two ? 1 : 0, "stop").integer("range");
    const Value given = arguments.get(2, "step");
    const std::int64_t step = given.is_undefined() ? 1 : given.integer("range");
    if (step == 0) fail("range: the step is 0");
    List out;
    for (std::int64_t i = begin; step > 0 ? i < end : i > end; i += step) {
        out.emplace_back(i);
        if (static_cast<std::int64_t>(out.size()) > max_range_items) fail("range: more than 100000 numbers");
    }
    return out;
}

Value dictionary(const Arguments& arguments, bool is_namespace) {
    Dict out;
    out.is_namespace = is_namespace;
    for (const Value& given : arguments.positional) {
        if (!given.is_dict()) fail("dict and namespace expect mappings or name=value");
        for (const auto& [key, value] : given.dict().entries) out.set(key, value);
    }
    for (const auto& [name, value] : arguments.names) out.set(name, value);
    return out;
}

/// 26 July 2024, the fallback date of Llama 3.1's template. The current date would change the prompt every
/// day.
Value date_text(const Arguments& arguments) {
    std::tm date{};
    date.tm_year = 124;
    date.tm_mon = 6;
    date.tm_mday = 26;
    date.tm_wday = 5;
    date.tm_yday = 207;
    char out[256];
    const std::string format = arguments.get(0, "format").to_text();
    return Value(std::string(out, std::strftime(out, sizeof out, format.c_str(), &date)));
}

}  // namespace

void check_length(std::size_t length) {
    if (length > max_text_bytes) fail("a string is longer than 64 MiB");
}

std::string strip_text(std::string_view text, const Value& characters, Side side) {
    std::vector<std::string> wanted;
    const bool spaces = characters.is_undefined() || characters.is_none();
    if (!spaces) {
        if (!characters.is_text()) fail("strip expects a string of characters");
        for (const Value& item : to_items(characters)) wanted.push_back(item.text());
    }
    const std::vector<std::size_t> at = character_offsets(text);
    const auto goes = [&](std::size_t i) {
        const std::string_view one = text.substr(at[i], at[i + 1] - at[i]);
        if (!spaces) return std::find(wanted.begin(), wanted.end(), one) != wanted.end();
        const Utf8Unit unit = next_utf8(one);
        return unit.kind == Utf8Unit::Kind::character && is_space(unit.character);
    };
    std::size_t begin = 0, end = at.size() - 1;
    while (side != Side::right && begin < end && goes(begin)) ++begin;
    while (side != Side::left && end > begin && goes(end - 1)) --end;
    return std::string(text.substr(at[begin], at[end] - at[begin]));
}

std::string replace_text(std::string_view text, std::string_view from, std::string_view to,
                         std::int64_t max_count) {
    if (from.empty()) fail("replace: the string to replace is empty");
    std::string out;
    std::size_t at = 0;
    for (std::size_t hit = text.find(from); hit != std::string_view::npos && max_count-- != 0;
         hit = text.find(from, at)) {
        out.append(text.substr(at, hit - at)).append(to);
        at = hit + from.size();
        check_length(out.size());
    }
    return out.append(text.substr(at));
}

Value find_method(const Value& subject, std::string_view name) {
    if (subject.is_text()) return text_method(subject.text(), name);
    if (subject.is_dict()) return subject.dict().is_namespace ? Value() : dict_method(subject, name);
    if (subject.is_list()) return list_method(subject, name);
    return {};
}

Value get_item(const Value& subject, const Value& key) {
    const auto missing = [&] { return Value(Undefined{key.to_text()}); };
    if (subject.is_undefined())
        fail("'", subject.undefined_name(), "' is undefined, so it has no '", key.to_text(), "'");
    if (subject.is_dict()) {
        const Value* found = subject.dict().find(key);
        return found != nullptr ? *found : missing();
    }
    if (!key.is_int()) return missing();
    const List items = subject.is_list() || subject.is_text() ? to_items(subject) : List{};
    const auto size = static_cast<std::int64_t>(items.size());
    std::int64_t at = key.integer("an index");
    if (at < 0) at += size;
    return at >= 0 && at < size ? items[at] : missing();
}

Value get_attribute(const Value& subject, std::string_view name) {
    if (subject.is_undefined())
        fail("'", subject.undefined_name(), "' is undefined, so it has no '", name, "'");
    Value method = find_method(subject, name);
    if (!method.is_undefined()) return method;
    const Value* found = subject.is_dict() ? subject.dict().find(Value(name)) : nullptr;
    return found != nullptr ? *found : Value(Undefined{std::string(name)});
}

Value get_slice(const Value& subject, const Value& from, const Value& to, const Value& step) {
    if (!subject.is_list() && !subject.is_text()) fail(subject.type(), " cannot be sliced");
    const List items = to_items(subject);
    const auto size = static_cast<std::int64_t>(items.size());
    const auto given = [](const Value& bound) { return !bound.is_undefined() && !bound.is_none(); };
    const std::int64_t stride = given(step) ? step.integer("a slice") : 1;
    if (stride == 0) fail("a slice has step 0");
    const std::int64_t lowest = stride > 0 ? 0 : -1, highest = stride > 0 ? size : size - 1;
    const auto bound = [&](const Value& value, std::int64_t otherwise) {
        if (!given(value)) return otherwise;
        const std::int64_t at = value.integer("a slice");
        return std::clamp(at < 0 ? at + size : at, lowest, highest);
    };
    const std::int64_t begin = bound(from, stride > 0 ? 0 : size - 1),
                       end = bound(to, stride > 0 ? size : -1);
    List out;
    // Clamp, so that a stride past either end does not wrap around.
    const std::int64_t hop = std::clamp(stride, -size - 1, size + 1);
    for (std::int64_t i = begin; hop > 0 ? i < end : i > end; i += hop) out.push_back(items[i]);
    if (!subject.is_text()) return out;
    std::string text;
    for (const Value& item : out) text += item.text();
    return text;
}

Value find_function(std::string_view name) {
    if (name == "range") return Function(range);
    if (name == "namespace") return Function([](const Arguments& a) { return dictionary(a, true); });
    if (name == "dict") return Function([](const Arguments& a) { return dictionary(a, false); });
    if (name == "raise_exception") {
        return Function([](const Arguments& a) -> Value {
            fail("the template raised: ", a.get(0, "message").to_text());
        });
    }
    if (name == "strftime_now") return Function(date_text);
    return {};
}

}  // namespace draftscope::jinja
