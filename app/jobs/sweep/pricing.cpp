#include "app/jobs/sweep/pricing.h"

#include <fmt/format.h>

#include <map>

#include "app/jobs/profile/profile_job.h"
#include "capture/head_traits.h"
#include "capture/run_setting.h"
#include "engine/draft/registry.h"

namespace draftscope {

std::string pair_text(std::string_view drafter, const std::string& head) {
    return head.empty() ? std::string(drafter) : fmt::format("{} x {}", drafter, head);
}

std::string method_text(std::string_view drafter, const std::string& head, const std::string& tree) {
    return fmt::format("{} @ {}", pair_text(drafter_id(drafter), head), tree);
}

Status price_setting(const MachineProfile& profile, double plain_context, SweepSetting& setting) {
    const SweepUnit total = setting.total();
    const double tau = total.tau().value_or(1);
    const double context = total.context().value_or(plain_context);
    DS_ASSIGN(const StepCost cost,
              predict_method(profile, method_text(setting.drafter, setting.head, setting.tree), tau, context,
                             setting.batch));
    DS_ASSIGN(const StepCost plain,
              predict_method(profile, std::string(plain_drafter), 1, plain_context, setting.batch));
    setting.round_ms = cost.total_ms();
    setting.head_ms = cost.head_ms;
    setting.curves = cost.curves;
    setting.plain_ms = plain.total_ms();
    setting.extrapolated = cost.extrapolated || plain.extrapolated;
    setting.cost_error.reset();
    setting.speedup_error.reset();
    if (!cost.error_ms || setting.round_ms <= 0) return {};
    setting.cost_error = *cost.error_ms / setting.round_ms;
    setting.speedup_error =
        profile.controls.empty()
            ? setting.cost_error
            : std::optional(ratio_error(cost.curves, cost.total_ms(), plain.curves, plain.total_ms()));
    return {};
}

void rank_settings(SweepReport& report) {
    std::map<std::string, std::size_t> full;
    const auto key = [](const SweepSetting& one) {
        return fmt::format("{}\n{}\n{}", one.drafter, one.batch, one.tree);
    };
    for (std::size_t s = 0; s < report.settings.size(); ++s)
        if (is_full_head(report.settings[s].head)) full[key(report.settings[s])] = s;
    for (SweepSetting& setting : report.settings) {
        setting.full.reset();
        if (const auto found = full.find(key(setting)); found != full.end()) setting.full = found->second;
    }
    report.rows = sweep_table(report.settings);
}

}  // namespace draftscope
