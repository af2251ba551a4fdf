#pragma once

#include <string>

#include "app/jobs/sweep/sweep_job.h"

/// Adds a profile's costs to swept settings.
namespace draftscope {

/// Returns "eagle3 x microspec", or the drafter alone if it uses no head.
std::string pair_text(std::string_view drafter, const std::string& head);
/// Returns the setting in the syntax of predict_method().
std::string method_text(std::string_view drafter, const std::string& head, const std::string& tree);

/// Predicts the times of a setting at its own tau and batch, and at the mean context of its rounds.
/// `plain_context` is that of plain decoding, and of rounds whose context is unknown. An error says what the
/// profile lacks.
Status price_setting(const MachineProfile& profile, double plain_context, SweepSetting& setting);

/// Links the settings of a report with those of their full head, and makes its rows.
void rank_settings(SweepReport& report);

}  // namespace draftscope
