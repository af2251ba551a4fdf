#pragma once

#include <optional>
#include <span>
#include <vector>

#include "stats/sweep_table.h"

/// Chooses one of many drafting settings whose speeds are predicted. Pure maths.
namespace draftscope {

/// The largest share of the speed that a choice gives up to be simpler (our default).
inline constexpr double choice_margin = 0.01;

/// The setting to use, and what to expect of it.
struct SettingChoice {
    /// Places in the list of settings. The runner-up is the fastest setting with another drafter or head; if
    /// there is none, with another tree.
    std::optional<std::size_t> chosen, fastest, runner_up;
    /// Figures free of the winner's advantage: every conversation counts with the setting that the other ones
    /// choose. Of one conversation they are those of the choice. Intervals include the profile's error.
    Estimate tau, speedup;
    std::size_t conversations = 0;
    std::size_t same_choice = 0;  ///< conversations without which the choice is the same
};

/// Returns whether `a` is simpler than `b`. The full head precedes others, and a chain precedes a tree. Then
/// fewer nodes count, then a shorter round.
bool is_simpler(const SweepSetting& a, const SweepSetting& b);

/// Chooses a setting of a batch; absent if none has rounds. It is the simplest one within `choice_margin` of
/// the fastest that is not shown to be slower. With too few conversations for intervals it is the fastest.
std::optional<SettingChoice> choose_setting(std::span<const SweepSetting> settings, int batch,
                                            const BootstrapOptions& options = {});

}  // namespace draftscope
