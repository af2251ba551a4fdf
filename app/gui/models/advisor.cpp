#include "app/gui/models/advisor.h"

#include <algorithm>

namespace draftscope {

std::vector<AdviceLine> advice_lines(SweepSettings settings, std::optional<std::size_t> chosen,
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
    if (!chosen || *chosen >= settings.size()) return lines;
    add("advised", chosen);
    const auto first = std::ranges::find(settings, settings[*chosen].batch, &SweepSetting::batch);
    add("fastest", static_cast<std::size_t>(first - settings.begin()));
    add("runner-up", runner_up);
    add("full head", settings[*chosen].full);
    add("default", usual);
    return lines;
}

ValueRange advice_scale(SweepSettings settings, const std::vector<AdviceLine>& lines) {
    ValueRange scale;
    scale.add(1);
    for (const AdviceLine& line : lines) scale.add(settings[line.row].figures.speedup);
    scale.widen(0.05);
    return scale;
}

}  // namespace draftscope
