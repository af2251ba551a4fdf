#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "engine/chat_template/value.h"

namespace draftscope::jinja {
namespace {

using V = const Value&;
using A = const Arguments&;

Builtin text_method(std::string_view name) {
    return find_method(Value::value_t::string, name);
}

/// Resolves a path such as "a.b.0" in an item, as the filters' attribute= does. The item itself if there is
/// none.
Value resolve_path(Value item, const Value& path) {
    if (!is_given(path)) return item;
    Value held;
    if (!path.is_string()) return get_item(item, path, held);
    const std::string& text = as_text(path);
    for (std::size_t at = 0; at <= text.size();) {
        const std::size_t end = std::min(text.find('.', at), text.size());
        const std::string name = text.substr(at, end - at);
        const bool index =
            !name.empty() && name.size() < 10 && name.find_first_not_of("0123456789") == std::string::npos;
        item = get_item(item, index ? Value(std::stoll(name)) : Value(name), held);
        at = end + 1;
    }
    return item;
}

Value length(V subject, A) {
    if (subject.is_string()) return characters(as_text(subject)).size();
    return subject.is_object() ? subject.size() : to_items(subject).size();
}

Value default_value(V subject, A arguments) {
    const bool missing = is_undefined(subject) || (truth(arguments.get(1, "boolean")) && !truth(subject));
    if (!missing) return subject;
    const Value& other = arguments.get(0, "default_value");
    return is_undefined(other) ? Value("") : other;
}

Value joined(V subject, A arguments) {
    Value items = to_items(subject);
    for (Value& item : items) item = resolve_path(std::move(item), arguments.get(1, "attribute"));
    return join(items, to_text(arguments.get(0, "d")));
}

template <bool Front>
Value end_item(V subject, A) {
    const List items = to_items(subject);
    return items.empty() ? undefined : Front ? items.front() : items.back();
}

/// The filters int and float.
template <typename Number>
Value converted(V subject, A arguments) {
    const Value text = text_method("strip")(subject, Arguments());
    const std::string& digits = as_text(text);
    char* end = nullptr;
    const double parsed = std::strtod(digits.c_str(), &end);
    const double value = is_number(subject) ? to_number(subject) : parsed;
    const bool is_read = is_number(subject) || (!digits.empty() && *end == '\0');
    const bool fits = std::is_same_v<Number, double> || std::abs(value) < 9e18;
    if (is_read && fits) return static_cast<Number>(value);
    const Value& other = arguments.get(0, "default");
    return is_undefined(other) ? Value(Number{}) : other;
}

/// The items of a filter's subject; false values count as an empty list, as in Jinja.
List items_if_true(V subject) {
    return truth(subject) ? to_items(subject) : List{};
}

/// `map(attribute=...)` or `map('filter', ...)`.
Value map(V subject, A arguments) {
    V attribute = arguments.get(99, "attribute");
    V other = arguments.get(99, "default");
    Builtin filter = nullptr;
    Arguments rest = arguments;
    if (is_undefined(attribute)) {
        filter = find_filter(arguments.text(0, "filter"));
        if (!rest.positional.empty()) rest.positional.erase(rest.positional.begin());
    }
    List out;
    std::int64_t cost = 0;
    for (V item : items_if_true(subject)) {
        Value found = filter != nullptr ? filter(item, rest) : resolve_path(item, attribute);
        out.push_back(is_undefined(found) && filter == nullptr ? other : std::move(found));
        cost += copy_cost(out.back());
        check_length(static_cast<std::size_t>(cost) * 64);
    }
    return out;
}

/// select, reject, selectattr, rejectattr: filters items by a test (default: truth) of the item or an
/// attribute.
template <bool ByAttribute, bool Wanted>
Value chosen(V subject, A arguments) {
    Arguments rest = arguments;
    const auto shift = [&] {
        if (rest.positional.empty()) return undefined;
        Value out = std::move(rest.positional.front());
        rest.positional.erase(rest.positional.begin());
        return out;
    };
    const Value attribute = ByAttribute ? shift() : undefined, name = shift();
    List out;
    for (V item : items_if_true(subject)) {
        const Value seen = resolve_path(item, attribute);
        if (truth(is_undefined(name) ? seen : find_test(to_text(name))(seen, rest)) == Wanted)
            out.push_back(item);
    }
    return out;
}

Value pairs(V subject, A) {
    if (is_undefined(subject)) return List{};
    if (!subject.is_object()) fail(type_name(subject), " has no items, only a mapping has");
    List out;
    for (const auto& [key, value] : subject.get_ref<const Dict&>()) out.push_back(List{from_key(key), value});
    return out;
}

struct Keyed {
    Value key, item;
};

/// Items with what they are compared by: an attribute or themselves, in lower case unless `case_sensitive`.
std::vector<Keyed> keyed(List items, V attribute, V case_sensitive) {
    std::vector<Keyed> out;
    for (Value& item : items) {
        Value key = resolve_path(item, attribute);
        if (key.is_string() && !truth(case_sensitive)) key = text_method("lower")(key, {});
        out.push_back({std::move(key), std::move(item)});
    }
    return out;
}

Value sorted(List items, V attribute, V case_sensitive, V reverse) {
    std::vector<Keyed> all = keyed(std::move(items), attribute, case_sensitive);
    std::stable_sort(all.begin(), all.end(), [&, falling = truth(reverse)](const Keyed& a, const Keyed& b) {
        return falling ? less(b.key, a.key) : less(a.key, b.key);
    });
    List out;
    for (Keyed& one : all) out.push_back(std::move(one.item));
    return out;
}

Value dictsort(V subject, A arguments) {
    const bool by_value = to_text(arguments.get(1, "by")) == "value";
    return sorted(pairs(subject, {}), Value(by_value ? 1 : 0), arguments.get(0, "case_sensitive"),
                  arguments.get(2, "reverse"));
}

Value sort(V subject, A arguments) {
    return sorted(to_items(subject), arguments.get(2, "attribute"), arguments.get(1, "case_sensitive"),
                  arguments.get(0, "reverse"));
}

Value unique(V subject, A arguments) {
    List out;
    Value seen = List{};
    for (Keyed& one :
         keyed(to_items(subject), arguments.get(1, "attribute"), arguments.get(0, "case_sensitive"))) {
        if (contains(seen, one.key)) continue;
        seen.push_back(std::move(one.key));
        out.push_back(std::move(one.item));
    }
    return out;
}

template <bool Largest>
Value extreme(V subject, A arguments) {
    const auto all =
        keyed(to_items(subject), arguments.get(1, "attribute"), arguments.get(0, "case_sensitive"));
    const auto best = std::max_element(all.begin(), all.end(), [](const Keyed& a, const Keyed& b) {
        return Largest ? less(a.key, b.key) : less(b.key, a.key);
    });
    return best == all.end() ? undefined : best->item;
}

Value indent(V subject, A arguments) {
    V width = arguments.get(0, "width");
    const std::int64_t columns = width.is_string() ? 0 : arguments.integer(0, "width", 4);
    const std::string spaces(static_cast<std::size_t>(std::clamp<std::int64_t>(columns, 0, 200)), ' ');
    const std::string margin = width.is_string() ? as_text(width) : spaces;
    const bool with_blank = truth(arguments.get(2, "blank"));
    const std::string source = to_text(subject);
    std::string out = truth(arguments.get(1, "first")) ? margin : "";
    for (std::size_t i = 0; i < source.size(); ++i) {
        out += source[i];
        if (source[i] != '\n') continue;
        const bool blank_line = i + 1 == source.size() || source[i + 1] == '\n';
        if (!blank_line || with_blank) out += margin;
        check_length(out.size());
    }
    return out;
}

Value escaped(V subject, A) {
    constexpr std::string_view marks = "&<>\"'", codes[] = {"&amp;", "&lt;", "&gt;", "&#34;", "&#39;"};
    std::string out;
    for (const char c : to_text(subject)) {
        const std::size_t found = marks.find(c);
        out += found == std::string_view::npos ? std::string_view(&c, 1) : codes[found];
    }
    return out;
}

Value rounded(V subject, A arguments) {
    const std::int64_t digits = std::clamp<std::int64_t>(arguments.integer(0, "precision", 0), -15, 15);
    const std::string method = to_text(arguments.get(1, "method"));
    const double scale = std::pow(10.0, static_cast<double>(digits)), value = to_number(subject) * scale;
    const double scaled = method == "ceil"    ? std::ceil(value)
                          : method == "floor" ? std::floor(value)
                                              : std::nearbyint(value);
    return scaled / scale;
}

Value sum(V subject, A arguments) {
    double out = 0;
    bool is_integer = true;
    for (V item : to_items(subject)) {
        const Value part = resolve_path(item, arguments.get(0, "attribute"));
        out += to_number(part);
        is_integer = is_integer && !part.is_number_float();
    }
    return is_integer && std::abs(out) < 9e15 ? Value(static_cast<std::int64_t>(out)) : Value(out);
}

std::int64_t remainder(V subject, std::int64_t divisor) {
    if (divisor == 0) fail("division by zero");
    return divisor == -1 ? 0 : to_integer(subject, "the number") % divisor;
}

using Table = std::unordered_map<std::string_view, Builtin>;

const Table& filters() {
    const Builtin absolute = [](V v, A) -> Value {
        if (v.is_number_float()) return std::abs(to_number(v));
        return to_number(v) < 0 ? Value(static_cast<std::int64_t>(-to_number(v))) : v;
    };
    const Builtin reverse = [](V v, A) {
        return v.is_string() ? get_slice(v, undefined, undefined, Value(-1))
                             : get_slice(to_items(v), undefined, undefined, Value(-1));
    };
    const Builtin tojson = [](V v, A a) -> Value {
        const std::int64_t columns = a.integer(0, "indent", -1);
        if (columns > 100) fail("tojson's indent is larger than 100");
        return to_json(v, static_cast<int>(columns), truth(a.get(4, "sort_keys")));
    };
    static const Table table = {
        {"abs", absolute},
        {"capitalize", text_method("capitalize")},
        {"count", length},
        {"d", default_value},
        {"default", default_value},
        {"dictsort", dictsort},
        {"e", escaped},
        {"escape", escaped},
        {"first", end_item<true>},
        {"float", converted<double>},
        {"indent", indent},
        {"int", converted<std::int64_t>},
        {"items", pairs},
        {"join", joined},
        {"last", end_item<false>},
        {"length", length},
        {"list", [](V v, A) -> Value { return to_items(v); }},
        {"lower", text_method("lower")},
        {"map", map},
        {"max", extreme<true>},
        {"min", extreme<false>},
        {"reject", chosen<false, false>},
        {"rejectattr", chosen<true, false>},
        {"replace", text_method("replace")},
        {"reverse", reverse},
        {"round", rounded},
        {"safe", [](V v, A) { return v; }},
        {"select", chosen<false, true>},
        {"selectattr", chosen<true, true>},
        {"sort", sort},
        {"string", [](V v, A) -> Value { return to_text(v); }},
        {"sum", sum},
        {"title", text_method("title")},
        {"tojson", tojson},
        {"trim", text_method("strip")},
        {"unique", unique},
        {"upper", text_method("upper")},
    };
    return table;
}

const Table& tests() {
    const Builtin iterable = [](V v, A) -> Value {
        return v.is_structured() || v.is_string() || v.is_discarded();
    };
    static const Table table = {
        {"==", find_operator("==")},
        {"boolean", [](V v, A) -> Value { return v.is_boolean(); }},
        {"callable", [](V v, A) -> Value { return function_of(v) != nullptr; }},
        {"defined", [](V v, A) -> Value { return !is_undefined(v); }},
        {"divisibleby",
         [](V v, A a) -> Value { return remainder(v, to_integer(a.get(0, "num"), "divisibleby")) == 0; }},
        {"eq", find_operator("==")},
        {"equalto", find_operator("==")},
        {"even", [](V v, A) -> Value { return remainder(v, 2) == 0; }},
        {"false", [](V v, A) -> Value { return v.is_boolean() && !truth(v); }},
        {"float", [](V v, A) -> Value { return v.is_number_float(); }},
        {"ge", find_operator(">=")},
        {"greaterthan", find_operator(">")},
        {"gt", find_operator(">")},
        {"in", [](V v, A a) -> Value { return contains(a.get(0, "seq"), v); }},
        {"integer", [](V v, A) -> Value { return v.is_number_integer(); }},
        {"iterable", iterable},
        {"le", find_operator("<=")},
        {"lessthan", find_operator("<")},
        {"lower", [](V v, A) -> Value { return text_method("lower")(v, {}) == to_text(v); }},
        {"lt", find_operator("<")},
        {"mapping", [](V v, A) -> Value { return v.is_object(); }},
        {"ne", find_operator("!=")},
        {"none", [](V v, A) -> Value { return v.is_null(); }},
        {"number", [](V v, A) -> Value { return is_number(v); }},
        {"odd", [](V v, A) -> Value { return remainder(v, 2) != 0; }},
        {"sameas", find_operator("==")},
        {"sequence", iterable},
        {"string", [](V v, A) -> Value { return v.is_string(); }},
        {"true", [](V v, A) -> Value { return v.is_boolean() && truth(v); }},
        {"undefined", [](V v, A) -> Value { return is_undefined(v); }},
        {"upper", [](V v, A) -> Value { return text_method("upper")(v, {}) == to_text(v); }},
    };
    return table;
}

Builtin find(const Table& table, std::string_view kind, std::string_view name) {
    const auto found = table.find(name);
    if (found == table.end()) fail(kind, " '", name, "' is not supported by this version");
    return found->second;
}

}  // namespace

Builtin find_filter(std::string_view name) {
    return find(filters(), "filter", name);
}
Builtin find_test(std::string_view name) {
    return find(tests(), "test", name);
}

}  // namespace draftscope::jinja
