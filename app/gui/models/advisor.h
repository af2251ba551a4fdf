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
    std::size_t row = 0;  ///< place in the list of settings
};
/// Returns the settings by role: advised, fastest, runner-up, the same tree with the full head, the default.
/// A setting with several roles has one line.
std::vector<AdviceLine> advice_lines(SweepSettings settings, std::optional<std::size_t> chosen,
                                     std::optional<std::size_t> runner_up, std::optional<std::size_t> usual);

/// Returns the range of the lines' speed-ups, which contains plain decoding (1).
ValueRange advice_scale(SweepSettings settings, const std::vector<AdviceLine>& lines);

}  // namespace draftscope
