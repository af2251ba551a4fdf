#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <ctime>
#include <map>

#include "base/utf8.h"
#include "engine/chat_template/value.h"
#include "engine/tokenizer/special_tokens.h"

namespace draftscope::jinja {
namespace {

using V = const Value&;
using A = const Arguments&;

constexpr std::size_t max_range_items = 100000;  // as in Jinja's sandbox

/// White space as Python's str.strip() removes it.
bool is_space(std::string_view one) {
    const Utf8Unit unit = next_utf8(one);
    const char32_t c = unit.character;
    return unit.kind == Utf8Unit::Kind::character && (is_white_space(c) || (c >= 0x1c && c <= 0x1f));
}

/// str.strip, str.lstrip and str.rstrip of `chars`, or of white space if that is not given.
template <bool Left, bool Right>
std::string stripped(std::string_view text, V chars) {
    const auto all = characters(text);
    const auto is_stripped = [&](std::string_view one) {
        return is_given(chars) ? contains(chars, Value(one)) : is_space(one);
    };
    std::size_t begin = 0, end = text.size();
    for (std::size_t i = 0; Left && i < all.size() && is_stripped(all[i]); ++i) begin += all[i].size();
    for (std::size_t i = all.size(); Right && i > 0 && end > begin && is_stripped(all[i - 1]); --i)
        end -= all[i - 1].size();
    return std::string(text.substr(begin, end - begin));
}

template <bool Left, bool Right>
Value strip(V subject, A arguments) {
    V chars = arguments.get(0, "chars");
    if (is_given(chars)) (void)arguments.text(0, "chars");
    return stripped<Left, Right>(to_text(subject), chars);
}

enum class Case { upper, lower, title, capitalised };

template <Case Wanted>
Value in_case(V subject, A) {
    std::string out;
    bool inside = false;  // inside a word (or the text)
    const std::string text = to_text(subject);
    for (const std::string_view one : characters(text)) {
        const Utf8Unit unit = next_utf8(one);
        if (unit.kind != Utf8Unit::Kind::character) {
            out += one;
            continue;
        }
        const auto c = static_cast<utf8proc_int32_t>(unit.character);
        const bool upper = Wanted == Case::upper || (Wanted != Case::lower && !inside);
        append_utf8(static_cast<char32_t>(upper ? utf8proc_toupper(c) : utf8proc_tolower(c)), out);
        const utf8proc_category_t category = utf8proc_category(c);
        const bool letter = category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
        inside = Wanted == Case::capitalised || letter;
    }
    return out;
}

/// The words of a text; the last one is the rest of the text after `left` cuts.
List words(std::string_view text, std::int64_t left) {
    List out;
    const auto all = characters(text);
    for (std::size_t i = 0; i < all.size();) {
        if (is_space(all[i])) {
            ++i;
            continue;
        }
        std::string word;
        for (; i < all.size() && (left == 0 || !is_space(all[i])); ++i) word += all[i];
        out.emplace_back(std::move(word));
        --left;
    }
    return out;
}

/// str.split and str.rsplit.
template <bool FromRight>
Value split(V subject, A arguments) {
    std::string text = to_text(subject);
    std::int64_t left = arguments.integer(1, "maxsplit", -1);
    if (!is_given(arguments.get(0, "sep"))) {
        if (FromRight && left >= 0) fail("rsplit without a separator is not supported by this version");
        return words(text, left);
    }
    const std::string& mark = arguments.text(0, "sep");
    if (mark.empty()) fail("split: the separator is empty");
    List out;
    if (!FromRight) {
        std::size_t begin = 0;
        for (std::size_t cut = text.find(mark); cut != std::string::npos && left-- != 0;
             cut = text.find(mark, begin)) {
            out.emplace_back(text.substr(begin, cut - begin));
            begin = cut + mark.size();
        }
        out.emplace_back(text.substr(begin));
        return out;
    }
    for (std::size_t cut = text.rfind(mark); cut != std::string::npos && left-- != 0;
         cut = text.rfind(mark)) {
        out.emplace_back(text.substr(cut + mark.size()));
        text.resize(cut);
    }
    out.emplace_back(std::move(text));
    std::reverse(out.begin(), out.end());
    return out;
}

Value lines(V subject, A arguments) {
    const std::string text = to_text(subject);
    const bool keep_ends = truth(arguments.get(0, "keepends"));
    List out;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = std::min(text.find_first_of("\n\r\v\f", at), text.size());
        const std::size_t next = text.compare(end, 2, "\r\n") == 0 ? end + 2 : std::min(end + 1, text.size());
        out.emplace_back(text.substr(at, (keep_ends ? next : end) - at));
        at = next;
    }
    return out;
}

/// str.startswith and str.endswith, with a text or a list of texts.
template <bool Start>
Value edge(V subject, A arguments) {
    V given = arguments.get(0, "prefix");
    const std::string text = to_text(subject);
    for (V item : given.is_array() ? to_items(given) : List{given}) {
        if (!item.is_string()) fail("startswith and endswith expect a string");
        if (Start ? text.starts_with(as_text(item)) : text.ends_with(as_text(item))) return true;
    }
    return false;
}

template <bool Start>
Value without_edge(V subject, A arguments) {
    const std::size_t size = truth(edge<Start>(subject, arguments)) ? arguments.text(0, "prefix").size() : 0;
    return as_text(subject).substr(Start ? size : 0, as_text(subject).size() - size);
}

Value replace(V subject, A arguments) {
    const std::string text = to_text(subject), &from = arguments.text(0, "old"),
                      &to = arguments.text(1, "new");
    std::int64_t left = arguments.integer(2, "count", -1);
    if (from.empty()) fail("replace: the string to replace is empty");
    std::string out;
    std::size_t at = 0;
    for (std::size_t hit = text.find(from); hit != std::string::npos && left-- != 0;
         hit = text.find(from, at)) {
        out.append(text, at, hit - at).append(to);
        at = hit + from.size();
        check_length(out.size());
    }
    return out.append(text, at);
}

Value joined_by_subject(V subject, A arguments) {
    const Value items = to_items(arguments.get(0, "iterable"));
    for (V item : items) {
        if (!item.is_string()) fail("join: ", type_name(item), " is not a string");
    }
    return join(items, as_text(subject));
}

/// str.format with `{}`, `{0}` and `{name}`; other forms are errors.
Value formatted(V subject, A arguments) {
    const std::string text = to_text(subject);
    std::string out;
    std::size_t next = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        const bool brace = c == '{' || c == '}', twice = i + 1 < text.size() && text[i + 1] == c;
        if (!brace || twice) {
            out += c;
            i += brace ? 1 : 0;
            continue;
        }
        const std::size_t end = text.find('}', i);
        if (c == '}' || end == std::string::npos) fail("format: unmatched brace");
        const std::string field = text.substr(i + 1, end - i - 1);
        if (field.find_first_of(":!.[") != std::string::npos)
            fail("format: '{", field, "}' is not supported by this version");
        const bool digits = field.find_first_not_of("0123456789") == std::string::npos && field.size() < 6;
        const std::size_t no_position = arguments.positional.size(), position = field.empty() ? next++
                                                                                : digits ? std::stoul(field)
                                                                                         : no_position;
        V value = arguments.get(position, field);
        if (is_undefined(value)) fail("format: no argument for '{", field, "}'");
        out += to_text(value);
        check_length(out.size());
        i = end;
    }
    return out;
}

template <bool Last>
Value find_text(V subject, A arguments) {
    const std::string text = to_text(subject), &part = arguments.text(0, "sub");
    const std::size_t found = Last ? text.rfind(part) : text.find(part);
    return found == std::string::npos ? Value(-1) : Value(characters(text.substr(0, found)).size());
}

Value count_text(V subject, A arguments) {
    const std::string text = to_text(subject), &part = arguments.text(0, "sub");
    if (part.empty()) return characters(text).size() + 1;
    std::int64_t out = 0;
    for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size()))
        ++out;
    return out;
}

Value get(V subject, A arguments) {
    Value held;
    V found = get_item(subject, arguments.get(0, "key"), held), &other = arguments.get(1, "default");
    return !is_undefined(found) ? found : is_undefined(other) ? Value() : other;
}

Value index(V subject, A arguments) {
    for (std::size_t i = 0; i < subject.size(); ++i) {
        if (equal(subject[i], arguments.get(0, "value"))) return i;
    }
    fail("index: the list has no such item");
}

Value range(V, A arguments) {
    const bool two = arguments.positional.size() > 1;
    const std::int64_t begin = two ? arguments.integer(0, "start", 0) : 0;
    const std::int64_t end = to_integer(arguments.get(two ? 1 : 0, "stop"), "range");
    const std::int64_t step = arguments.integer(2, "step", 1);
    if (step == 0) fail("range: the step is 0");
    List out;
    for (std::int64_t i = begin; step > 0 ? i < end : i > end;) {
        out.emplace_back(i);
        if (out.size() > max_range_items) fail("range: more than 100000 numbers");
        if (__builtin_add_overflow(i, step, &i)) break;
    }
    return out;
}

Value dictionary(V, A arguments) {
    Value out = Value::object();
    for (V given : arguments.positional) {
        if (!given.is_object()) fail("dict and namespace expect mappings or name=value");
        for (const auto& [key, value] : given.get_ref<const Dict&>()) out[key] = value;
    }
    for (const auto& [name, value] : arguments.names) out[name] = value;
    return out;
}

/// 26 July 2024, the fallback date of Llama 3.1's template. The current date would change the prompt every
/// day.
Value date_text(V, A arguments) {
    std::tm date{};
    date.tm_year = 124;
    date.tm_mon = 6;
    date.tm_mday = 26;
    date.tm_wday = 5;
    date.tm_yday = 207;
    return format_date(date, arguments);
}

}  // namespace

Value format_date(const std::tm& date, const Arguments& arguments) {
    char out[256];
    const std::string format = to_text(arguments.get(0, "format"));
    return std::string(out, std::strftime(out, sizeof out, format.c_str(), &date));
}

Builtin find_method(Value::value_t type, std::string_view name) {
    constexpr auto string = Value::value_t::string, object = Value::value_t::object,
                   array = Value::value_t::array;
    static const std::map<std::pair<Value::value_t, std::string_view>, Builtin> table = {
        {{string, "capitalize"}, in_case<Case::capitalised>},
        {{string, "count"}, count_text},
        {{string, "endswith"}, edge<false>},
        {{string, "find"}, find_text<false>},
        {{string, "format"}, formatted},
        {{string, "isdigit"},
         [](V v, A) -> Value {
             return truth(v) && as_text(v).find_first_not_of("0123456789") == std::string::npos;
         }},
        {{string, "isspace"},
         [](V v, A) -> Value { return truth(v) && stripped<true, true>(as_text(v), undefined).empty(); }},
        {{string, "join"}, joined_by_subject},
        {{string, "lower"}, in_case<Case::lower>},
        {{string, "lstrip"}, strip<true, false>},
        {{string, "removeprefix"}, without_edge<true>},
        {{string, "removesuffix"}, without_edge<false>},
        {{string, "replace"}, replace},
        {{string, "rfind"}, find_text<true>},
        {{string, "rsplit"}, split<true>},
        {{string, "rstrip"}, strip<false, true>},
        {{string, "split"}, split<false>},
        {{string, "splitlines"}, lines},
        {{string, "startswith"}, edge<true>},
        {{string, "strip"}, strip<true, true>},
        {{string, "title"}, in_case<Case::title>},
        {{string, "upper"}, in_case<Case::upper>},
        {{object, "get"}, get},
        {{object, "items"}, [](V v, A a) { return find_filter("items")(v, a); }},
        {{object, "keys"}, [](V v, A) -> Value { return to_items(v); }},
        {{object, "values"}, [](V v, A) -> Value { return List(v.begin(), v.end()); }},
        // In Jinja's sandbox, as Hugging Face configures it, templates cannot modify lists.
        {{array, "count"},
         [](V v, A a) -> Value {
             return std::count_if(v.begin(), v.end(), [&](V item) { return equal(item, a.get(0, "value")); });
         }},
        {{array, "index"}, index},
    };
    const auto found = table.find({type, name});
    return found == table.end() ? nullptr : found->second;
}

Builtin find_function(std::string_view name) {
    static const std::map<std::string_view, Builtin> table = {
        {"dict", dictionary},
        {"namespace",
         [](V v, A a) {
             return Value::binary(std::make_shared<Handle>(Handle{{}, dictionary(v, a)}));
         }},
        {"raise_exception",
         [](V, A a) -> Value { fail("the template raised: ", to_text(a.get(0, "message"))); }},
        {"range", range},
        {"strftime_now", date_text},
    };
    const auto found = table.find(name);
    return found == table.end() ? nullptr : found->second;
}

}  // namespace draftscope::jinja
