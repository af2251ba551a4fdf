#include "app/cli/estimates.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace draftscope::cli {

using nlohmann::json;

std::string number(const std::optional<double>& value, int digits) {
    return value ? fmt::format("{:.{}f}", *value, digits) : std::string("-");
}

std::string with_interval(const std::optional<Estimate>& estimate, int digits) {
    return estimate ? estimate_text(*estimate, digits) : std::string("-");
}

std::string difference(const std::optional<Estimate>& estimate) {
    if (!estimate) return "-";
    if (!estimate->interval) return fmt::format("{:+.3f}", estimate->value);
    return fmt::format("{:+.3f} [{:+.3f}, {:+.3f}]", estimate->value, estimate->interval->low,
                       estimate->interval->high);
}

json or_null(const std::optional<double>& value) {
    return value ? json(*value) : json(nullptr);
}

json or_null(const std::string& text) {
    return text.empty() ? json(nullptr) : json(text);
}

json estimate_json(const std::optional<Estimate>& estimate) {
    if (!estimate) return nullptr;
    return {{"value", estimate->value}, {"interval", estimate_interval_json(estimate)}};
}

json estimate_interval_json(const std::optional<Estimate>& estimate) {
    if (!estimate || !estimate->interval) return nullptr;
    return {estimate->interval->low, estimate->interval->high};
}

json intervals_json(const AcceptanceCost& cost) {
    json out =
        write_fields(as(estimate_interval_json, join(DS_FIELDS(AcceptanceCost, tau), cost_fields)), cost);
    for (auto one = out.begin(); one != out.end();) one = one->is_null() ? out.erase(one) : std::next(one);
    return out;
}

}  // namespace draftscope::cli
