#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/gui/models/sweep.h"

/// Model of the Advisor panel: the figures that stand behind an advice.
namespace draftscope {

/// A setting that an advice speaks of.
struct AdviceLine {
    std::string role;     ///< "advised", "runner-up", "default", ...
    std::size_t row = 0;  ///< place in SweepData::rows
};
/// Returns the settings by role: advised, fastest, runner-up, the same tree with the full head, the default.
/// A setting with several roles has one line. `chosen` and `runner_up` are places in SweepData::settings,
/// `usual` one in the rows.
std::vector<AdviceLine> advice_lines(const SweepData& data, std::optional<std::size_t> chosen,
                                     std::optional<std::size_t> runner_up, std::optional<std::size_t> usual);

/// The scale of the lines' speed-ups, which contains plain decoding (1).
struct AdviceScale {
    double low = 1, high = 1;
    /// Returns a speed-up's position, clamped to 0..1.
    double at(double speedup) const;
};
AdviceScale advice_scale(const SweepData& data, const std::vector<AdviceLine>& lines);

}  // namespace draftscope
