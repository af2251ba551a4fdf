#include "app/jobs/run/choose_tree.h"

#include <algorithm>

#include "app/jobs/run/kept_forecast.h"
#include "app/jobs/run/tree_autotuner.h"
#include "capture/run_setting.h"
#include "engine/draft/registry.h"

namespace draftscope {
namespace {

AutotuneHead loaded_head(const ResolvedRun& run, const ModelCache& models) {
    return {models.drafter().uses_head() ? to_text(*run.head) : "", models.head(), models.full_head()};
}

/// Measures every head that may be chosen. `use` loads the candidate of an index.
Status measure(TreeAutotuner& pilot, const ResolvedRun& run, const ModelCache& models,
               FunctionRef<Result<AutotuneHead>(std::size_t)> use) {
    const bool quick = !run.shipped.empty();
    if (run.head_candidates.empty()) {
        const AutotuneHead given = loaded_head(run, models);
        if (quick) return pilot.costs(given, run.shipped.at(given.text));
        DS_TRY(pilot.chains(given));
        return pilot.trees(given);
    }
    if (!quick) {
        std::vector<std::string> heads;
        for (const HeadCandidate& one : run.head_candidates) heads.push_back(to_text(one.spec));
        return measure_heads(pilot, heads, use);
    }
    for (std::size_t h = 0; h < run.head_candidates.size(); ++h) {
        DS_ASSIGN(const AutotuneHead loaded, use(h));
        DS_TRY(pilot.costs(loaded, run.shipped.at(loaded.text)));
    }
    return {};
}

}  // namespace

Status choose_tree(RunPlan& plan, ModelCache& models, DebugGate& gate, const RunHooks& hooks,
                   RunReport& report) {
    ResolvedRun& run = plan.run;
    const DrafterInfo& info = *find_drafter(run.drafter_id);
    if (!info.drafts) return {};
    if (!models.drafter().uses_head()) run.head_candidates.clear();
    TreeAutotuner pilot({models.target(), models.drafter(), models.backend(),
                         plan.decode_options(models.shadows()), plan.chat, info.chains_only},
                        plan.conversations, gate, hooks);
    const auto use = [&](std::size_t h) -> Result<AutotuneHead> {
        run.head = run.head_candidates[h].spec;
        run.artefacts = run.head_candidates[h].artefacts;
        DS_TRY(models.load_heads(run));
        return loaded_head(run, models);
    };
    // Kept are the forecasts of all heads that quick chooses among.
    const bool keeps = !run.shipped.empty() && !run.head_candidates.empty();
    const std::string key = keeps ? forecast_key(run, models) : "";
    if (keeps && hooks.use_kept_forecast) run.forecasts = load_forecasts(key, run.shipped);
    report.kept_forecast = !run.forecasts.empty();
    if (!report.kept_forecast) {
        DS_TRY(measure(pilot, run, models, use));
        report.pilot_rounds = pilot.rounds();
        run.forecasts = pilot.forecasts();
        if (keeps && !gate.cancelled()) save_forecasts(key, run.forecasts);
    }
    report.forecasts = run.forecasts;
    if (!run.forecasts.empty()) {
        const SweepSetting& best = run.forecasts.front();
        run.tree = to_tree_spec(best.shape);
        if (!run.shipped.empty() && best.speedup() < 1) {
            run.drafter_id = plain_drafter;
            run.drafter_path.clear();
            DS_TRY(models.load_drafter(run, hooks));
            return models.load_heads(run);
        }
    }
    if (run.head_candidates.empty()) return {};
    // A cancelled pilot has no forecasts: the first candidate is used.
    const auto is_best = [&](const HeadCandidate& one) {
        return run.forecasts.empty() || to_text(one.spec) == run.forecasts.front().head;
    };
    const auto best = std::find_if(run.head_candidates.begin(), run.head_candidates.end(), is_best);
    DS_TRY(use(best - run.head_candidates.begin()));
    return {};
}

}  // namespace draftscope
