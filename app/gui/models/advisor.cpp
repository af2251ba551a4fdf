#include "app/gui/models/advisor.h"

#include <algorithm>

#include "capture/head_traits.h"

namespace draftscope {

std::vector<AdviceLine> advice_lines(const SweepData& data, std::optional<std::size_t> chosen,
                                     std::optional<std::size_t> runner_up, std::optional<std::size_t> usual) {
    std::vector<AdviceLine> lines;
    const auto add = [&](const char* role, std::optional<std::size_t> row) {
        if (!row) return;
        const auto known = std::ranges::find(lines, *row, &AdviceLine::row);
        if (known == lines.end())
            lines.push_back({role, *row});
        else
            known->role += std::string(", ") + role;
    };
    const auto find = [&](auto wanted) -> std::optional<std::size_t> {
        for (std::size_t r = 0; r < data.rows.size(); ++r)
            if (wanted(data.setting(r), data.rows[r].setting)) return r;
        return std::nullopt;
    };
    if (!chosen || *chosen >= data.settings.size()) return lines;
    const SweepSetting& best = data.settings[*chosen];
    add("advised", find([&](const SweepSetting&, std::size_t s) { return s == *chosen; }));
    add("fastest", find([&](const SweepSetting& one, std::size_t) { return one.batch == best.batch; }));
    add("runner-up", find([&](const SweepSetting&, std::size_t s) { return s == runner_up; }));
    add("full head", find([&](const SweepSetting& one, std::size_t) {
            return is_full_head(one.head) && one.drafter == best.drafter && one.tree == best.tree &&
                   one.batch == best.batch;
        }));
    add("default", usual);
    return lines;
}

double AdviceScale::at(double speedup) const {
    return high > low ? std::clamp((speedup - low) / (high - low), 0.0, 1.0) : 0;
}

AdviceScale advice_scale(const SweepData& data, const std::vector<AdviceLine>& lines) {
    AdviceScale scale;
    for (const AdviceLine& line : lines) {
        const Estimate& speedup = data.rows[line.row].speedup;
        scale.low = std::min({scale.low, speedup.value, speedup.interval ? speedup.interval->low : 1});
        scale.high = std::max({scale.high, speedup.value, speedup.interval ? speedup.interval->high : 1});
    }
    const double margin = 0.05 * std::max(scale.high - scale.low, 0.05);
    scale.low -= margin;
    scale.high += margin;
    return scale;
}

}  // namespace draftscope
