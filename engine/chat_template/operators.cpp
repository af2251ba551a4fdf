#include <cmath>
#include <unordered_map>

#include "engine/chat_template/value.h"

namespace draftscope::jinja {
namespace {

using V = const Value&;
using A = const Arguments&;
using Wide = __int128;  // holds every sum and product of two integers

/// Division as Python's //, which rounds towards minus infinity.
double divided(double a, double b) {
    if (b == 0) fail("division by zero");
    return std::floor(a / b);
}
Wide divided(Wide a, Wide b) {
    if (b == 0) fail("division by zero");
    return a / b - (a % b != 0 && (a % b < 0) != (b < 0) ? 1 : 0);
}

/// Computes with doubles if either number is one, otherwise with integers.
template <typename Compute>
Value computed(std::string_view op, V a, V b, Compute compute) {
    if (!is_number(a) || !is_number(b)) fail(type_name(a), " ", op, " ", type_name(b), " cannot be computed");
    if (a.is_number_float() || b.is_number_float()) return compute(to_number(a), to_number(b));
    const Wide out = compute(Wide{to_integer(a, "the operand")}, Wide{to_integer(b, "the operand")});
    if (out != static_cast<std::int64_t>(out)) fail("a number is out of range");
    return static_cast<std::int64_t>(out);
}

Value plus(V a, V b) {
    if (a.is_string() && b.is_string())
        return check_length(as_text(a).size() + as_text(b).size()), as_text(a) + as_text(b);
    if (!a.is_array() || !b.is_array()) return computed("+", a, b, [](auto x, auto y) { return x + y; });
    Value out = a;
    out.insert(out.end(), b.begin(), b.end());
    return out;
}

Value times(V a, V b) {
    if (!a.is_string() || !b.is_number_integer())
        return computed("*", a, b, [](auto x, auto y) { return x * y; });
    std::string out;
    for (auto left = b.get<std::int64_t>(); left > 0 && !as_text(a).empty(); --left) {
        out += as_text(a);
        check_length(out.size());
    }
    return out;
}

Value power(V a, V b) {
    const double out = std::pow(to_number(a), to_number(b));
    const bool is_integer =
        !a.is_number_float() && !b.is_number_float() && std::abs(out) < 9e15 && to_number(b) >= 0;
    return is_integer ? Value(static_cast<std::int64_t>(out)) : Value(out);
}

Value joined(V a, V b) {
    std::string out = to_text(a) + to_text(b);
    check_length(out.size());
    return out;
}

V right(A arguments) {
    return arguments.get(0, "other");
}

}  // namespace

Builtin find_operator(std::string_view name) {
    static const std::unordered_map<std::string_view, Builtin> table = {
        {"!=", [](V v, A a) -> Value { return !equal(v, right(a)); }},
        {"%",
         [](V v, A a) {
             return computed("%", v, right(a), [](auto x, auto y) { return x - divided(x, y) * y; });
         }},
        {"*", [](V v, A a) { return times(v, right(a)); }},
        {"**", [](V v, A a) { return power(v, right(a)); }},
        {"+", [](V v, A a) { return plus(v, right(a)); }},
        {"-", [](V v, A a) { return computed("-", v, right(a), [](auto x, auto y) { return x - y; }); }},
        {"/",
         [](V v, A a) -> Value {
             return (void)divided(1.0, to_number(right(a))), to_number(v) / to_number(right(a));
         }},
        {"//",
         [](V v, A a) { return computed("//", v, right(a), [](auto x, auto y) { return divided(x, y); }); }},
        {"<", [](V v, A a) -> Value { return less(v, right(a)); }},
        {"<=", [](V v, A a) -> Value { return !less(right(a), v); }},
        {"==", [](V v, A a) -> Value { return equal(v, right(a)); }},
        {">", [](V v, A a) -> Value { return less(right(a), v); }},
        {">=", [](V v, A a) -> Value { return !less(v, right(a)); }},
        {"[:]", [](V v, A a) { return get_slice(v, a.get(0, ""), a.get(1, ""), a.get(2, "")); }},
        {"in", [](V v, A a) -> Value { return contains(right(a), v); }},
        {"not", [](V v, A) -> Value { return !truth(v); }},
        {"not in", [](V v, A a) -> Value { return !contains(right(a), v); }},
        {"~", [](V v, A a) { return joined(v, right(a)); }},
    };
    return table.at(name);
}

}  // namespace draftscope::jinja
