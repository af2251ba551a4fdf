#pragma once

#include <cmath>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <type_traits>

#include "base/json_file.h"

/// The fields of a report, described once to be written as JSON and read again, as storage/column.h describes
/// tables. DS_FIELDS names members whose keys are their names; field() gives another key, or a value that
/// follows from the row. A rule applies to a group of fields.
///
///     constexpr auto fields = join(DS_FIELDS(Point, ms, rows), omitted_if_none(DS_FIELDS(Point, size)));
///     json out = write_fields(fields, point);
///     DS_TRY(read_fields(fields, file, point));
namespace draftscope {

/// One field. `get` is a pointer to a member, or a function of the row, which is written but never read.
template <typename Get>
struct Field {
    const char* key;
    Get get;
    const char* suffix = "";                             ///< follows the key
    bool null_if_none = false, omitted_if_none = false;  ///< see is_none()
    bool is_required = false;
    double low = std::numeric_limits<double>::lowest(), high = std::numeric_limits<double>::max();
};
template <typename Get>
constexpr auto field(const char* key, Get get) {
    return std::tuple(Field<Get>{key, get});
}
template <typename... Groups>
constexpr auto join(Groups... groups) {
    return std::tuple_cat(groups...);
}

/// Returns the rule that changes each field of a group.
template <typename Change>
constexpr auto rule(Change change) {
    return [=](auto group) {
        std::apply([&](auto&... one) { (change(one), ...); }, group);
        return group;
    };
}
/// Absent values (see is_none()) are written as null, or not written.
inline constexpr auto null_if_none = rule([](auto& one) { one.null_if_none = true; });
inline constexpr auto omitted_if_none = rule([](auto& one) { one.omitted_if_none = true; });
/// A reader refuses a row without the field, or with an empty one. Without other fields, members keep their
/// values.
inline constexpr auto required = rule([](auto& one) { one.is_required = true; });
/// Limits of numbers that are read.
template <typename Group>
constexpr auto between(double low, double high, Group group) {
    return rule([=](auto& one) { one.low = low, one.high = high; })(group);
}
template <typename Group>
constexpr auto at_least(double low, Group group) {
    return between(low, std::numeric_limits<double>::max(), group);
}
/// Writes `convert(value)` with the suffix after the key. The fields are not read.
template <typename Convert, typename Group>
constexpr auto as(Convert convert, Group group, const char* suffix = "") {
    const auto change = [=](auto one) {
        const auto get = [=](const auto& row) { return convert(std::invoke(one.get, row)); };
        return Field<decltype(get)>{one.key, get, suffix, one.null_if_none, one.omitted_if_none};
    };
    return std::apply([&](auto... one) { return std::tuple(change(one)...); }, group);
}

// DS_FIELDS(Row, a, b) is join(field("a", &Row::a), field("b", &Row::b)), for up to 39 members.
#define DS_FIELDS(Row, ...) ::draftscope::join(DS_FIELDS_SCAN(DS_FIELDS_NEXT(Row, __VA_ARGS__)))
#define DS_FIELDS_NEXT(Row, name, ...) \
    ::draftscope::field(#name, &Row::name) __VA_OPT__(, DS_FIELDS_AGAIN DS_FIELDS_PARENS(Row, __VA_ARGS__))
#define DS_FIELDS_PARENS ()
#define DS_FIELDS_AGAIN() DS_FIELDS_NEXT
#define DS_FIELDS_SCAN(...) DS_FIELDS_SCAN9(DS_FIELDS_SCAN9(DS_FIELDS_SCAN9(__VA_ARGS__)))
#define DS_FIELDS_SCAN9(...) DS_FIELDS_SCAN3(DS_FIELDS_SCAN3(DS_FIELDS_SCAN3(__VA_ARGS__)))
#define DS_FIELDS_SCAN3(...) DS_FIELDS_SCAN1(DS_FIELDS_SCAN1(DS_FIELDS_SCAN1(__VA_ARGS__)))
#define DS_FIELDS_SCAN1(...) __VA_ARGS__

/// Returns whether a value says "none": an empty text or list, false, or a number that is not above 0.
template <typename Value>
bool is_none(const Value& value) {
    if constexpr (requires { value.has_value(); })
        return !value.has_value();
    else if constexpr (requires { value.empty(); })
        return value.empty();
    else if constexpr (requires { value > Value(); })
        return !(value > Value());
    else
        return false;
}
/// Returns a value as JSON: an enum as its text, an absent optional as null.
template <typename Json, typename Value>
Json to_json_value(const Value& value) {
    if constexpr (requires { value.has_value(); })
        return value ? to_json_value<Json>(*value) : Json();
    else if constexpr (std::is_enum_v<Value>)
        return to_text(value);
    else
        return value;
}
/// Writes the fields of a row in their order.
template <typename Json = nlohmann::json, typename... Get, typename Row>
Json write_fields(const std::tuple<Field<Get>...>& fields, const Row& row) {
    Json out = Json::object();
    const auto write = [&](const auto& one) {
        const auto& value = std::invoke(one.get, row);
        const bool none = (one.null_if_none || one.omitted_if_none) && is_none(value);
        if (!none || !one.omitted_if_none)
            out[std::string(one.key) + one.suffix] = none ? Json() : to_json_value<Json>(value);
    };
    std::apply([&](const auto&... one) { (write(one), ...); }, fields);
    return out;
}
/// Returns a function that writes a list of rows, for as().
template <typename Group>
constexpr auto list_of(Group group) {
    return [=]<typename Rows>(const Rows& rows) {
        nlohmann::json out = nlohmann::json::array();
        for (const auto& row : rows) out.push_back(write_fields(group, row));
        return out;
    };
}

/// Sets `value` to `found` if that is in [low, high]. Returns what was expected otherwise; "" = it is set.
/// An enum is set by `std::string read_text(std::string_view, Enum&)`, which returns the same.
template <typename Value>
std::string read_value(const nlohmann::json& found, double low, double high, Value& value) {
    if constexpr (requires { value.has_value(); }) {
        return read_value(found, low, high, value.emplace());
    } else if constexpr (std::is_same_v<Value, bool> || std::is_same_v<Value, std::string>) {
        constexpr bool text = std::is_same_v<Value, std::string>;
        if (text ? !found.is_string() : !found.is_boolean()) return text ? "a string" : "true or false";
        value = found.get<Value>();
    } else if constexpr (std::is_enum_v<Value>) {
        return read_text(found.is_string() ? found.get<std::string>() : "", value);
    } else if constexpr (requires { value.emplace_back(); }) {
        value.clear();
        std::string expected = found.is_array() ? "" : "values";
        for (const auto& one : found.is_array() ? found : nlohmann::json::array())
            if (expected.empty()) expected = read_value(one, low, high, value.emplace_back());
        return expected.empty() ? "" : "a list, each " + expected;
    } else {
        low = std::max(low, static_cast<double>(std::numeric_limits<Value>::lowest()));
        high = std::min(high, static_cast<double>(std::numeric_limits<Value>::max()));
        constexpr bool whole = std::is_integral_v<Value>;
        const bool number = whole ? found.is_number_integer() : found.is_number();
        if (!number || !(found.get<double>() >= low && found.get<double>() <= high))
            return fmt::format(
                "{} of {}", whole ? "an integer" : "a number",
                high < 1e18 ? fmt::format("{} to {}", low, high) : fmt::format("at least {}", low));
        value = found.get<Value>();
    }
    return {};
}
/// Reads a field if it is a member. An error names the file, the field, its value and what was expected.
template <typename Get, typename Row>
Status read_field(const Field<Get>& one, const JsonFile& file, Row& row) {
    if constexpr (std::is_member_object_pointer_v<Get>) {
        const nlohmann::json* found = file.find(one.key);
        if (found == nullptr && !one.is_required) return {};
        auto value = row.*one.get;
        std::string expected =
            read_value(found == nullptr ? nlohmann::json() : *found, one.low, one.high, value);
        if constexpr (requires { value.empty(); })
            if (one.is_required && expected.empty() && value.empty()) expected = "one that is not empty";
        if (!expected.empty()) return file.field_error(one.key, expected);
        row.*one.get = std::move(value);
    }
    return {};
}
template <typename... Get, typename Row>
Status read_fields(const std::tuple<Field<Get>...>& fields, const JsonFile& file, Row& row) {
    Status read;
    std::apply([&](const auto&... one) { ((read = read_field(one, file, row)).ok() && ...); }, fields);
    return read;
}
/// Reads what is valid. Returns a line for each other field, and for each unknown one.
template <typename... Get, typename Row>
std::vector<std::string> read_valid_fields(const std::tuple<Field<Get>...>& fields, const JsonFile& file,
                                           Row& row) {
    std::vector<std::string> problems;
    const auto read_one = [&](const auto& one) {
        const Status read = read_field(one, file, row);
        if (!read.ok()) problems.push_back(read.error().message);
    };
    const auto is_known = [&](const std::string& key) {
        return std::apply([&](const auto&... one) { return ((key == one.key) || ...); }, fields);
    };
    std::apply([&](const auto&... one) { (read_one(one), ...); }, fields);
    for (const auto& [key, value] : file.json().items())
        if (!is_known(key))
            problems.push_back(fmt::format("{}: {}{} is unknown", file.path(), file.prefix(), key));
    return problems;
}

}  // namespace draftscope
