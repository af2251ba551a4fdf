#include <utf8proc.h>

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "base/utf8.h"
#include "engine/chat_template/builtins.h"

namespace draftscope::jinja {
namespace {

using Filter = Value (*)(const Value&, const Arguments&);
using Test = bool (*)(const Value&, const Arguments&);

/// Methods of texts that are also filters.
template <const char* Name>
Value as_method(const Value& subject, const Arguments& arguments) {
    const Value text = subject.is_text() ? subject : Value(subject.to_text());
    return find_method(text, Name).function()(arguments);
}

constexpr char upper_name[] = "upper", lower_name[] = "lower", title_name[] = "title",
               capitalize_name[] = "capitalize", replace_name[] = "replace";

/// Resolves a path such as "a.b.0" in an item, as the filters' attribute= does.
Value resolve_path(Value item, const Value& path) {
    if (!path.is_text()) return get_item(item, path);
    const std::string& text = path.text();
    for (std::size_t at = 0; at <= text.size();) {
        const std::size_t end = std::min(text.find('.', at), text.size());
        const std::string name = text.substr(at, end - at);
        const bool index = !name.empty() && name.find_first_not_of("0123456789") == std::string::npos;
        item = index && name.size() < 10 ? get_item(item, Value(std::int64_t{std::stoll(name)}))
                                         : get_item(item, Value(name));
        at = end + 1;
    }
    return item;
}

Value trim(const Value& subject, const Arguments& arguments) {
    return strip_text(subject.to_text(), arguments.get(0, "chars"), Side::both);
}

Value length(const Value& subject, const Arguments&) {
    if (subject.is_text()) return Value(static_cast<std::int64_t>(text_length(subject.text())));
    if (subject.is_dict()) return Value(static_cast<std::int64_t>(subject.dict().entries.size()));
    return Value(static_cast<std::int64_t>(to_items(subject).size()));
}

Value tojson(const Value& subject, const Arguments& arguments) {
    const Value indent = arguments.get(0, "indent");
    const bool lines = !indent.is_undefined() && !indent.is_none();
    const std::int64_t columns = lines ? indent.integer("tojson's indent") : -1;
    if (columns > 100) fail("tojson's indent is larger than 100");
    return to_json(subject, static_cast<int>(columns), arguments.get(4, "sort_keys").truth());
}

Value default_value(const Value& subject, const Arguments& arguments) {
    const bool missing = subject.is_undefined() || (arguments.get(1, "boolean").truth() && !subject.truth());
    if (!missing) return subject;
    const Value other = arguments.get(0, "default_value");
    return other.is_undefined() ? Value("") : other;
}

Value join(const Value& subject, const Arguments& arguments) {
    const std::string between = arguments.get(0, "d").to_text();
    const Value attribute = arguments.get(1, "attribute");
    std::string out;
    bool first = true;
    for (const Value& item : to_items(subject)) {
        if (!std::exchange(first, false)) out += between;
        out += (attribute.is_undefined() ? item : resolve_path(item, attribute)).to_text();
        check_length(out.size());
    }
    return out;
}

Value first(const Value& subject, const Arguments&) {
    const List items = to_items(subject);
    return items.empty() ? Value() : items.front();
}
Value last(const Value& subject, const Arguments&) {
    const List items = to_items(subject);
    return items.empty() ? Value() : items.back();
}
Value list(const Value& subject, const Arguments&) {
    return to_items(subject);
}
Value text(const Value& subject, const Arguments&) {
    return subject.to_text();
}

Value whole_number(const Value& subject, const Arguments& arguments) {
    const Value other = arguments.get(0, "default");
    const Value fallback = other.is_undefined() ? Value(std::int64_t{0}) : other;
    if (subject.is_text()) {
        const std::string digits = strip_text(subject.text(), Value(), Side::both);
        char* end = nullptr;
        const double value = std::strtod(digits.c_str(), &end);
        if (digits.empty() || *end != '\0' || !(std::abs(value) < 9e18)) return fallback;
        return Value(static_cast<std::int64_t>(value));
    }
    if (!subject.is_number() || !(std::abs(subject.number()) < 9e18)) return fallback;
    return Value(static_cast<std::int64_t>(subject.number()));
}

Value floating(const Value& subject, const Arguments& arguments) {
    if (subject.is_number()) return subject.number();
    const Value other = arguments.get(0, "default");
    const std::string digits = strip_text(subject.to_text(), Value(), Side::both);
    char* end = nullptr;
    const double value = std::strtod(digits.c_str(), &end);
    if (digits.empty() || *end != '\0') return other.is_undefined() ? Value(0.0) : other;
    return value;
}

/// `map(attribute=...)` or `map('filter', ...)`.
Value map(const Value& subject, const Arguments& arguments) {
    const Value attribute = arguments.get(99, "attribute");
    List out;
    if (!attribute.is_undefined()) {
        const Value other = arguments.get(99, "default");
        for (const Value& item : subject.truth() ? to_items(subject) : List{}) {
            Value found = resolve_path(item, attribute);
            out.push_back(found.is_undefined() && !other.is_undefined() ? other : std::move(found));
        }
        return out;
    }
    const Value name = arguments.get(0, "filter");
    if (!name.is_text()) fail("map expects an attribute or the name of a filter");
    Arguments rest = arguments;
    rest.positional.erase(rest.positional.begin());
    for (const Value& item : subject.truth() ? to_items(subject) : List{})
        out.push_back(apply_filter(name.text(), item, rest));
    return out;
}

/// select, reject, selectattr, rejectattr: filters items by a test (default: truth) of the item or an
/// attribute.
Value chosen(const Value& subject, const Arguments& arguments, bool by_attribute, bool wanted) {
    Arguments rest = arguments;
    Value attribute, name;
    const auto shift = [&](Value& to) {
        if (rest.positional.empty()) return;
        to = rest.positional.front();
        rest.positional.erase(rest.positional.begin());
    };
    if (by_attribute) shift(attribute);
    shift(name);
    List out;
    // As in Jinja, false values count as an empty list.
    for (const Value& item : subject.truth() ? to_items(subject) : List{}) {
        const Value seen = by_attribute ? resolve_path(item, attribute) : item;
        const bool passes = name.is_undefined() ? seen.truth() : apply_test(name.to_text(), seen, rest);
        if (passes == wanted) out.push_back(item);
    }
    return out;
}
Value select(const Value& subject, const Arguments& arguments) {
    return chosen(subject, arguments, false, true);
}
Value reject(const Value& subject, const Arguments& arguments) {
    return chosen(subject, arguments, false, false);
}
Value selectattr(const Value& subject, const Arguments& arguments) {
    return chosen(subject, arguments, true, true);
}
Value rejectattr(const Value& subject, const Arguments& arguments) {
    return chosen(subject, arguments, true, false);
}

Value pairs(const Value& subject, const Arguments&) {
    if (subject.is_undefined()) return List{};
    if (!subject.is_dict()) fail(subject.type(), " has no items, only a mapping has");
    List out;
    for (const auto& [key, value] : subject.dict().entries) out.push_back(List{key, value});
    return out;
}

std::string folded(const Value& value) {
    return find_method(Value(value.to_text()), "lower").function()({}).text();
}

/// Jinja compares texts case-insensitively by default.
bool goes_before(const Value& a, const Value& b, bool case_sensitive) {
    if (a.is_text() && b.is_text() && !case_sensitive) return folded(a) < folded(b);
    return less(a, b);
}

Value dictsort(const Value& subject, const Arguments& arguments) {
    const Value found = pairs(subject, {});
    const bool case_sensitive = arguments.get(0, "case_sensitive").truth();
    const std::size_t by = arguments.get(1, "by").to_text() == "value" ? 1 : 0;
    List& out = found.list();
    std::stable_sort(out.begin(), out.end(), [&](const Value& a, const Value& b) {
        return goes_before(a.list()[by], b.list()[by], case_sensitive);
    });
    if (arguments.get(2, "reverse").truth()) std::reverse(out.begin(), out.end());
    return found;
}

Value sort(const Value& subject, const Arguments& arguments) {
    List out = to_items(subject);
    const bool reverse = arguments.get(0, "reverse").truth();
    const bool case_sensitive = arguments.get(1, "case_sensitive").truth();
    const Value attribute = arguments.get(2, "attribute");
    const auto key = [&](const Value& item) {
        return attribute.is_undefined() || attribute.is_none() ? item : resolve_path(item, attribute);
    };
    std::stable_sort(out.begin(), out.end(), [&](const Value& a, const Value& b) {
        return reverse ? goes_before(key(b), key(a), case_sensitive)
                       : goes_before(key(a), key(b), case_sensitive);
    });
    return out;
}

Value unique(const Value& subject, const Arguments& arguments) {
    const Value attribute = arguments.get(1, "attribute");
    const bool case_sensitive = arguments.get(0, "case_sensitive").truth();
    List out, seen;
    for (const Value& item : to_items(subject)) {
        Value key = attribute.is_undefined() ? item : resolve_path(item, attribute);
        if (key.is_text() && !case_sensitive) key = Value(folded(key));
        if (contains(Value(seen), key)) continue;
        seen.push_back(key);
        out.push_back(item);
    }
    return out;
}

Value reverse(const Value& subject, const Arguments&) {
    List out = to_items(subject);
    std::reverse(out.begin(), out.end());
    if (!subject.is_text()) return out;
    std::string joined;
    for (const Value& item : out) joined += item.text();
    return joined;
}

Value indent(const Value& subject, const Arguments& arguments) {
    const Value width = arguments.get(0, "width");
    const std::int64_t columns = width.is_undefined() ? 4
                                 : width.is_text()
                                     ? 0
                                     : std::clamp<std::int64_t>(width.integer("indent"), 0, 200);
    const std::string margin = width.is_text() ? width.text() : std::string(columns, ' ');
    const bool with_first = arguments.get(1, "first").truth(), with_blank = arguments.get(2, "blank").truth();
    const std::string source = subject.to_text();
    std::string out = with_first ? margin : "";
    for (std::size_t i = 0; i < source.size(); ++i) {
        out += source[i];
        if (source[i] != '\n') continue;
        const bool blank_line = i + 1 == source.size() || source[i + 1] == '\n';
        if (!blank_line || with_blank) out += margin;
        check_length(out.size());
    }
    return out;
}

Value unchanged(const Value& subject, const Arguments&) {
    return subject;
}

Value escaped(const Value& subject, const Arguments&) {
    std::string out;
    for (const char c : subject.to_text()) {
        if (c == '&')
            out += "&amp;";
        else if (c == '<')
            out += "&lt;";
        else if (c == '>')
            out += "&gt;";
        else if (c == '"')
            out += "&#34;";
        else if (c == '\'')
            out += "&#39;";
        else
            out += c;
    }
    return out;
}

Value absolute(const Value& subject, const Arguments&) {
    if (subject.is_float()) return std::abs(subject.number());
    const std::int64_t value = subject.integer("abs");
    return Value(value < 0 ? std::int64_t{0} - value : value);
}

Value rounded(const Value& subject, const Arguments& arguments) {
    const Value precision = arguments.get(0, "precision");
    const auto digits = precision.is_undefined() ? std::int64_t{0} : precision.integer("round");
    const std::string method = arguments.get(1, "method").to_text();
    const double scale = std::pow(10.0, static_cast<double>(std::clamp<std::int64_t>(digits, -15, 15)));
    const double value = subject.number() * scale;
    const double whole = method == "ceil"    ? std::ceil(value)
                         : method == "floor" ? std::floor(value)
                                             : std::nearbyint(value);
    return whole / scale;
}

Value extreme(const Value& subject, bool largest) {
    const List items = to_items(subject);
    if (items.empty()) return {};
    return *std::max_element(items.begin(), items.end(), [&](const Value& a, const Value& b) {
        return largest ? goes_before(a, b, false) : goes_before(b, a, false);
    });
}
Value min_item(const Value& subject, const Arguments&) {
    return extreme(subject, false);
}
Value max_item(const Value& subject, const Arguments&) {
    return extreme(subject, true);
}

Value sum(const Value& subject, const Arguments& arguments) {
    const Value attribute = arguments.get(0, "attribute");
    double out = 0;
    bool whole = true;
    for (const Value& item : to_items(subject)) {
        const Value part = attribute.is_undefined() ? item : resolve_path(item, attribute);
        out += part.number();
        whole = whole && !part.is_float();
    }
    return whole && std::abs(out) < 9e15 ? Value(static_cast<std::int64_t>(out)) : Value(out);
}

const std::unordered_map<std::string_view, Filter>& filter_table() {
    static const std::unordered_map<std::string_view, Filter> table = {
        {"trim", trim},
        {"length", length},
        {"count", length},
        {"tojson", tojson},
        {"default", default_value},
        {"d", default_value},
        {"join", join},
        {"first", first},
        {"last", last},
        {"list", list},
        {"string", text},
        {"int", whole_number},
        {"float", floating},
        {"map", map},
        {"select", select},
        {"reject", reject},
        {"selectattr", selectattr},
        {"rejectattr", rejectattr},
        {"items", pairs},
        {"dictsort", dictsort},
        {"sort", sort},
        {"unique", unique},
        {"reverse", reverse},
        {"indent", indent},
        {"safe", unchanged},
        {"escape", escaped},
        {"e", escaped},
        {"abs", absolute},
        {"round", rounded},
        {"min", min_item},
        {"max", max_item},
        {"sum", sum},
        {"upper", as_method<upper_name>},
        {"lower", as_method<lower_name>},
        {"title", as_method<title_name>},
        {"capitalize", as_method<capitalize_name>},
        {"replace", as_method<replace_name>}};
    return table;
}

bool same(const Value& subject, const Arguments& arguments) {
    return equal(subject, arguments.get(0, "other"));
}
bool differs(const Value& subject, const Arguments& arguments) {
    return !same(subject, arguments);
}
bool below(const Value& subject, const Arguments& arguments) {
    return less(subject, arguments.get(0, "other"));
}
bool above(const Value& subject, const Arguments& arguments) {
    return less(arguments.get(0, "other"), subject);
}
std::int64_t remainder_of_division(const Value& subject, std::int64_t divisor) {
    if (divisor == 0) fail("division by zero");
    return divisor == -1 ? 0 : subject.integer("the number") % divisor;
}
bool in_case(const Value& subject, const char* method) {
    const std::string text = subject.to_text();
    return find_method(Value(text), method).function()({}).text() == text;
}

const std::unordered_map<std::string_view, Test>& test_table() {
    static const std::unordered_map<std::string_view, Test> table = {
        {"defined", [](const Value& v, const Arguments&) { return !v.is_undefined(); }},
        {"undefined", [](const Value& v, const Arguments&) { return v.is_undefined(); }},
        {"none", [](const Value& v, const Arguments&) { return v.is_none(); }},
        {"string", [](const Value& v, const Arguments&) { return v.is_text(); }},
        {"number", [](const Value& v, const Arguments&) { return v.is_number(); }},
        {"integer", [](const Value& v, const Arguments&) { return v.is_int(); }},
        {"float", [](const Value& v, const Arguments&) { return v.is_float(); }},
        {"boolean", [](const Value& v, const Arguments&) { return v.is_bool(); }},
        {"true", [](const Value& v, const Arguments&) { return v.is_bool() && v.truth(); }},
        {"false", [](const Value& v, const Arguments&) { return v.is_bool() && !v.truth(); }},
        {"mapping", [](const Value& v, const Arguments&) { return v.is_dict(); }},
        {"iterable",
         [](const Value& v, const Arguments&) {
             return v.is_list() || v.is_dict() || v.is_text() || v.is_undefined();
         }},
        {"sequence",
         [](const Value& v, const Arguments&) {
             return v.is_list() || v.is_dict() || v.is_text() || v.is_undefined();
         }},
        {"callable", [](const Value& v, const Arguments&) { return v.is_function(); }},
        {"in", [](const Value& v, const Arguments& a) { return contains(a.get(0, "seq"), v); }},
        {"==", same},
        {"eq", same},
        {"equalto", same},
        {"sameas", same},
        {"ne", differs},
        {"lt", below},
        {"lessthan", below},
        {"gt", above},
        {"greaterthan", above},
        {"le", [](const Value& v, const Arguments& a) { return !above(v, a); }},
        {"ge", [](const Value& v, const Arguments& a) { return !below(v, a); }},
        {"even", [](const Value& v, const Arguments&) { return remainder_of_division(v, 2) == 0; }},
        {"odd", [](const Value& v, const Arguments&) { return remainder_of_division(v, 2) != 0; }},
        {"divisibleby",
         [](const Value& v, const Arguments& a) {
             return remainder_of_division(v, a.get(0, "num").integer("divisibleby")) == 0;
         }},
        {"lower", [](const Value& v, const Arguments&) { return in_case(v, "lower"); }},
        {"upper", [](const Value& v, const Arguments&) { return in_case(v, "upper"); }}};
    return table;
}

}  // namespace

Value apply_filter(std::string_view name, const Value& subject, const Arguments& arguments) {
    const auto found = filter_table().find(name);
    if (found == filter_table().end()) fail("filter '", name, "' is not supported by this version");
    return found->second(subject, arguments);
}
bool apply_test(std::string_view name, const Value& subject, const Arguments& arguments) {
    const auto found = test_table().find(name);
    if (found == test_table().end()) fail("test '", name, "' is not supported by this version");
    return found->second(subject, arguments);
}

}  // namespace draftscope::jinja
