#include "app/jobs/run/choose_tree.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "app/jobs/run/tree_autotuner.h"
#include "app/jobs/sweep/source_key.h"
#include "base/log.h"
#include "base/user_folders.h"
#include "capture/run_setting.h"
#include "engine/draft/registry.h"
#include "engine/heads/artefact.h"

namespace draftscope {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr std::size_t max_kept = 16;  // our default

fs::path forecasts_file() {
    return cache_folder() / "forecasts.json";
}

/// Returns the kept settings by key; empty if the file is missing or damaged.
json read_kept() {
    std::ifstream file(forecasts_file());
    json kept = json::parse(file, nullptr, false);
    return kept.is_object() ? kept : json::object();
}

/// Names what a forecast depends on: machine, files, threads, precision, shipped acceptance and version.
std::string forecast_key(const ResolvedRun& run, const ModelCache& models) {
    const auto model = checkpoint_hash(run.config.model),
               acceptance = checkpoint_hash(find_asset("demo_acceptance.json"));
    return fmt::format("{}, {}, {} threads{}, {}, model {}, drafter {}, acceptance {}, version {}",
                       models.machine().cpu_name, run.config.backend, models.exec().threads(),
                       run.config.pin ? ", pinned" : "", to_text(models.target().precision()),
                       model.ok() ? *model : "", weights_key(run), acceptance.ok() ? *acceptance : "",
                       DRAFTSCOPE_VERSION);
}

/// Returns the forecasts that were kept under `key`, fastest first; empty if there are none.
std::vector<SweepSetting> load_forecasts(const std::string& key, const ShippedAcceptance& shipped) {
    std::vector<SweepSetting> found;
    const json kept = read_kept();
    try {
        for (const json& one : kept.at(key)) {
            SweepSetting& setting = found.emplace_back();
            setting.head = one.at("head");
            setting.tree = one.at("tree");
            setting.round_ms = one.at("round_ms");
            setting.plain_ms = one.at("plain_ms");
            for (const TreeAcceptance& known : shipped.at(setting.head))
                if (to_text(to_tree_spec(known.tree)) == setting.tree) {
                    setting.shape = known.tree;
                    setting.units = known.units;
                }
            if (setting.units.empty() || setting.round_ms <= 0 || setting.plain_ms <= 0) return {};
        }
    } catch (const std::exception&) {  // not kept, or damaged
        return {};
    }
    return found;
}

/// Replaces what is kept under `key`. A warning tells if it can't be written.
void save_forecasts(const std::string& key, std::span<const SweepSetting> forecasts) {
    json kept = read_kept();
    if (kept.size() >= max_kept) kept.clear();
    json& settings = kept[key] = json::array();
    for (const SweepSetting& one : forecasts)
        settings.push_back(
            {{"head", one.head}, {"tree", one.tree}, {"round_ms", one.round_ms}, {"plain_ms", one.plain_ms}});
    const fs::path path = forecasts_file();
    if (!path.is_absolute()) return;  // no home is known
    if (!replace_file(path, kept.dump(1, ' ', false, json::error_handler_t::replace)))
        log_warning("{}: the forecast can't be kept", path.string());
}

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
    TreeAutotuner pilot({models.target(), models.drafter(), models.exec(),
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
