#include "app/jobs/run/run_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "app/jobs/resolve/artefacts.h"
#include "app/jobs/resolve/assets.h"
#include "app/jobs/resolve/source_key.h"
#include "app/jobs/run/model_cache.h"
#include "app/jobs/run/tree_autotuner.h"
#include "base/cpus.h"
#include "base/log.h"
#include "base/user_folders.h"
#include "capture/head_traits.h"
#include "capture/run_setting.h"
#include "engine/draft/registry.h"
#include "engine/heads/artefact.h"
#include "stats/bootstrap.h"

namespace draftscope {
namespace {

/// Time that a run of few conversations may take to follow its texts with the full head; our default.
constexpr TimeNs max_full_shadow_ns = 1000 * ns_per_ms;

void keep_window(std::vector<Conversation>& conversations, const RunHooks& hooks) {
    const auto first = std::min(static_cast<std::size_t>(hooks.first_conversation), conversations.size());
    conversations.erase(conversations.begin(), conversations.begin() + static_cast<std::ptrdiff_t>(first));
    if (hooks.conversations > 0 && conversations.size() > static_cast<std::size_t>(hooks.conversations))
        conversations.resize(hooks.conversations);
}

}  // namespace

Result<RunPlan> make_run_plan(const RunConfig& config, const RunHooks& hooks) {
    RunPlan plan;
    DS_ASSIGN(plan.run, resolve_run(config));
    DS_ASSIGN(PromptSet set, read_prompts(plan.run.config));
    plan.conversations = std::move(set.conversations);
    plan.total = set.total;
    plan.prompts_hash = std::move(set.hash);
    plan.notes = plan.run.notes;
    append_notes(plan.notes, set.notes);
    append_notes(plan.notes, thread_limit_notes(plan.run.config.threads));
    plan.bench = hooks.bench;
    plan.windowed = hooks.conversations > 0;
    keep_window(plan.conversations, hooks);
    return plan;
}

std::size_t RunPlan::prompts() const {
    std::size_t sum = 0;
    for (const Conversation& conversation : conversations) sum += conversation.turns.size();
    return sum;
}

std::optional<RunPlan> RunPlan::make_baseline() const {
    if (!find_drafter(run.drafter_id)->drafts) return std::nullopt;
    const bool free = run.config.baseline == short_baseline;
    // Higher tiers compare no speeds, and shards would differ in what they hold.
    if (free && (run.tier != Tier::t0 || !run.config.shard.whole())) return std::nullopt;
    RunPlan plain = *this;
    plain.baseline = true;
    plain.only_if_short = free;
    plain.total = std::min(total, free ? run.config.batch : run.config.baseline);
    std::erase_if(plain.conversations, [&](const Conversation& one) { return one.index >= plain.total; });
    std::erase_if(plain.skipped, [&](int index) { return index >= plain.total; });
    if (plain.conversations.empty()) return std::nullopt;
    ResolvedRun& settings = plain.run;
    settings.drafter_id = plain_drafter;
    settings.drafter_path.clear();
    settings.head.reset();
    settings.artefacts = {};
    settings.forecasts.clear();
    settings.auto_tree = false;
    settings.acceptance.reset();
    RunConfig& config = settings.config;
    // With simulated acceptance the text is meaningless, so plain decoding ignores end-of-text tokens as
    // well.
    config.ignore_eos = config.ignore_eos || run.acceptance.has_value();
    config.acceptance = RunConfig().acceptance;
    config.drafter = plain_drafter;
    config.head = RunConfig().head;
    config.artefacts.clear();
    config.tree.clear();
    config.shadow.clear();
    config.calibration_rounds = 0;
    config.baseline = 0;
    if (!config.balanced && !config.prompts_file.empty()) config.limit = plain.total;
    return plain;
}

DecodeOptions RunPlan::decode_options(std::span<const ShadowHead> shadows) const {
    const RunConfig& config = run.config;
    DecodeOptions options;
    options.tree = run.tree;
    options.sampling = {config.temperature, config.top_p, config.top_k, config.seed};
    options.rule = run.rule();
    options.batch = config.batch;
    options.max_new = config.max_new;
    // With simulated acceptance the text is meaningless, including its end-of-text tokens.
    options.ignore_eos = config.ignore_eos || run.acceptance.has_value();
    // A full head as a shadow head measures more than a few calibration rounds.
    const bool has_full_shadow =
        std::any_of(shadows.begin(), shadows.end(), [](const ShadowHead& s) { return is_full_head(s.text); });
    options.calibration_rounds = has_full_shadow || run.acceptance ? 0 : config.calibration_rounds;
    // Fewer conversations have too few calibration rounds to compare with the full head.
    if (options.calibration_rounds > 0 && config.batch == 1 && total < static_cast<int>(min_conversations))
        options.full_shadow_ns = max_full_shadow_ns;
    options.shadows.assign(shadows.begin(), shadows.end());
    if (run.gpu && run.tier == Tier::t0) options.span_interval = device_span_interval;
    return options;
}

ConversationFeed::Settings RunPlan::feed_settings() const {
    return {.chat = chat,
            .first_turns = false,
            .whole_answers = run.config.batch > 1,
            .suite = std::filesystem::path(run.config.prompts_file).stem().string()};
}

Status warn_of_overlap(const RunPlan& plan) {
    if (!plan.run.head) return {};
    std::vector<std::string> hashes;
    for (const Conversation& conversation : plan.conversations) hashes.push_back(conversation.hash());
    const auto warn = [&](const ResolvedRun& run) {
        const std::string warning = overlap_warning(*run.head, run.artefacts, hashes, "the run");
        if (!warning.empty()) log_warning("{}", warning);
    };
    warn(plan.run);
    DS_ASSIGN(const std::vector<ResolvedShadow> shadows, resolve_shadows(plan.run));
    for (const ResolvedShadow& shadow : shadows) warn(shadow.run);
    return {};
}

namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr std::size_t max_kept = 16;  // our default

/// The file in the user's cache folder with the measured costs of --tree quick. With them, each start on a
/// machine chooses the same setting.
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
