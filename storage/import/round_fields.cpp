#include "storage/import/round_fields.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "base/json_file.h"

namespace draftscope::storage {

namespace {

constexpr double rounding = 1e-5;  ///< by which a printed log-probability may exceed 0

bool is_integer_in(const Json& value, std::int64_t low, std::int64_t high) {
    // Larger than any 64-bit time is unsigned in the parser.
    if (!value.is_number_integer() || (value.is_number_unsigned() && value.get<std::uint64_t>() >> 63 != 0))
        return false;
    const auto number = value.get<std::int64_t>();
    return number >= low && number <= high;
}

std::string range_text(std::int64_t low, std::int64_t high) {
    return high == max_count ? fmt::format("an integer from {} on", low)
                             : fmt::format("an integer from {} to {}", low, high);
}

}  // namespace

const Json* RoundFields::find(std::string_view path) const {
    const Json* at = &object_;
    while (!path.empty()) {
        const std::string_view key = path.substr(0, path.find('.'));
        path.remove_prefix(std::min(key.size() + 1, path.size()));
        if (!at->is_object()) return nullptr;
        const auto found = at->find(std::string(key));
        if (found == at->end() || found->is_null()) return nullptr;
        at = &*found;
    }
    return at;
}

const Json* RoundFields::find_list(std::string_view path) {
    const Json* value = find(path);
    if (value == nullptr || value->is_array()) return value;
    refuse_value(path, *value, "a list");
    return nullptr;
}

const Json* RoundFields::first_choice() const {
    const Json* choices = find("choices");
    return choices != nullptr && choices->is_array() && !choices->empty() ? &(*choices)[0] : nullptr;
}

std::optional<std::int64_t> RoundFields::integer(std::string_view path, std::int64_t low, std::int64_t high) {
    const Json* value = find(path);
    if (value == nullptr) return std::nullopt;
    if (is_integer_in(*value, low, high)) return value->get<std::int64_t>();
    refuse_value(path, *value, range_text(low, high));
    return std::nullopt;
}

std::optional<double> RoundFields::real(std::string_view path) {
    const Json* value = find(path);
    if (value == nullptr) return std::nullopt;
    if (value->is_number() && std::isfinite(value->get<double>())) return value->get<double>();
    refuse_value(path, *value, "a number");
    return std::nullopt;
}

std::string RoundFields::text(std::string_view path) {
    const Json* value = find(path);
    if (value == nullptr) return {};
    if (value->is_string()) return value->get<std::string>();
    refuse_value(path, *value, "a text");
    return {};
}

bool RoundFields::flag(std::string_view path) {
    const Json* value = find(path);
    if (value != nullptr && !value->is_boolean()) refuse_value(path, *value, "true or false");
    return value != nullptr && value->is_boolean() && value->get<bool>();
}

std::optional<std::vector<int>> RoundFields::integers(std::string_view path, std::int64_t low,
                                                      std::int64_t high) {
    const Json* list = find_list(path);
    if (list == nullptr) return std::nullopt;
    std::vector<int> out;
    for (const Json& one : *list) {
        const bool unknown = one.is_null() && low < 0;
        if (!unknown && !is_integer_in(one, low, high)) {
            refuse_value(fmt::format("{}[{}]", path, out.size()), one, range_text(low, high));
            return std::nullopt;
        }
        out.push_back(unknown ? -1 : one.get<int>());
    }
    return out;
}

std::optional<std::vector<float>> RoundFields::logprobs(std::string_view path) {
    const Json* list = find_list(path);
    if (list == nullptr) return std::nullopt;
    std::vector<float> out;
    for (const Json& one : *list) {
        const double number = one.is_number() ? one.get<double>() : 0;
        if ((!one.is_number() && !one.is_null()) || !(number <= rounding)) {
            refuse_value(fmt::format("{}[{}]", path, out.size()), one, "a log-probability, at most 0");
            return std::nullopt;
        }
        out.push_back(one.is_null() ? std::numeric_limits<float>::quiet_NaN()
                                    : static_cast<float>(std::min(number, 0.0)));
    }
    return out;
}

void RoundFields::refuse(std::string_view path, const std::string& why) {
    if (problem_.empty()) problem_ = fmt::format("field {}: {}", path, why);
}

void RoundFields::refuse_value(std::string_view path, const Json& value, const std::string& expected) {
    refuse(path, fmt::format("{}, expected {}", printable_json(value), expected));
}

}  // namespace draftscope::storage
