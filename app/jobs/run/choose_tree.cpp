#include "app/jobs/run/choose_tree.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "app/jobs/resolve/assets.h"
#include "app/jobs/resolve/run_weights.h"
#include "app/jobs/run/conversation_feed.h"
#include "base/clock.h"
#include "base/fields.h"
#include "base/function_ref.h"
#include "base/log.h"
#include "base/phase.h"
#include "base/user_folders.h"
#include "capture/run_setting.h"
#include "engine/decode/session.h"
#include "engine/draft/registry.h"
#include "engine/heads/artefact.h"
#include "stats/setting_choice.h"
#include "stats/tree_choice.h"

namespace draftscope {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

// Our defaults: the pilot's trees, its number of tokens and of conversations.
constexpr TreeShape largest_tree{3, 4, 24};
constexpr int longest_chain = 6;
constexpr int pilot_tokens = 40;
constexpr std::size_t pilot_conversations = 2;
constexpr int verified_rows[] = {1, 2, 3, 4, 5, 7, 9, 12, 16, 24};
constexpr int verify_repeats = 5;
constexpr int verify_context = 128;
// --tree quick: tokens decoded, and verifications per size.
constexpr int quick_tokens = 12;
constexpr int quick_repeats = 3;

double median(std::vector<double> values) {
    if (values.empty()) return 0;
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

bool drafts(int phase_id) {
    switch (static_cast<Phase>(phase_id)) {
        case Phase::backbone:
        case Phase::router:
        case Phase::head:
        case Phase::topk:
        case Phase::gather:
            return true;
        default:
            return false;
    }
}

/// A prepared head; all members null or empty for drafters without a head.
struct PilotHead {
    std::string text;
    LmHead* head = nullptr;
    LmHead* full = nullptr;  ///< null if `head` is the full head
};
/// Prepares the head of an index in place of the previous one.
using LoadHead = FunctionRef<Result<PilotHead>(std::size_t)>;

/// Decodes a few rounds of a run's first prompts with a long chain and with a large tree, times verifications
/// of 1 to 24 rows, and forecasts every smaller tree. Has no lasting effect except grown caches.
struct Pilot {
    const ModelCache& models;
    DecodeOptions options;  ///< of the run; their tree is ignored
    const ChatTemplate& chat;
    DebugGate& gate;
    const RunHooks& hooks;
    std::vector<Conversation> conversations;
    TreeShape chain = {}, tree = {};                  ///< of the pilot's rounds
    std::vector<std::pair<int, double>> verify = {};  ///< as in RoundCosts; empty until measured
    int rounds = 0;
    std::vector<SweepSetting> forecasts = {};  ///< fastest first; empty if nothing could be drafted
};

/// Collects trees, their accepted paths and the times of their rounds.
class PilotSink final : public RecordSink {
  public:
    explicit PilotSink(int depth) : depth_(depth) {}

    void push(Record record) override {
        const auto* step = std::get_if<StepRecord>(&record);
        if (step == nullptr) return;
        for (const RoundRecord& round : step->rounds) {
            PilotRound nodes;
            for (const NodeRow& node : round.nodes)
                nodes.push_back({node.parent, node.depth, node.cum_logprob, node.accepted});
            if (!nodes.empty()) rounds.push_back(std::move(nodes));
        }
        if (!step->step.time_counts()) return;
        double verify = 0, levels = 0;
        for (const SpanRow& span : step->spans) {
            if (span.nesting > 0 || span.lane != 0) continue;
            const auto took = static_cast<double>(span.end_ns - span.start_ns);
            if (span.phase_id == static_cast<int>(Phase::verify)) verify += took;
            if (drafts(span.phase_id) && span.level >= 1) levels += took;
        }
        const StepRow& row = step->step;
        level_.push_back(depth_ > 0 ? levels / depth_ : 0);
        fixed_.push_back(static_cast<double>(row.busy_ns()) - verify - levels);
    }
    RoundCosts costs(const std::vector<std::pair<int, double>>& verify) const {
        return {verify, median(fixed_), median(level_)};
    }

    std::vector<PilotRound> rounds;

  private:
    int depth_;
    std::vector<double> level_, fixed_;
};

/// Sets the deepest chain and tree that the drafter supports.
void choose_pilot_trees(Pilot& pilot, bool chains_only) {
    pilot.conversations.resize(std::min(pilot.conversations.size(), pilot_conversations));
    const auto deepest = [&](TreeShape shape) {
        while (shape.depth > 0 && !check_tree(pilot.models.drafter(), to_tree_spec(shape)).ok()) {
            --shape.depth;
            shape.nodes = shape.topk == 1
                              ? shape.depth + 2
                              : std::min(shape.nodes, 1 + shape.topk + shape.depth * shape.topk * shape.topk);
        }
        return shape;
    };
    pilot.chain = deepest({longest_chain - 1, 1, longest_chain + 1});
    pilot.tree = chains_only ? pilot.chain : deepest(largest_tree);
}

/// Returns the median times of verifications of each size after the first prompt; sizes ascending.
Result<std::vector<std::pair<int, double>>> time_verifications(const Pilot& pilot, int max_rows,
                                                               int repeats) {
    DS_ASSIGN(std::vector<TokenId> prompt,
              ConversationFeed::first_turn(pilot.models.target(), pilot.conversations.front(), pilot.chat));
    const int room = pilot.models.target().config().context - max_rows;
    prompt.resize(
        std::clamp(static_cast<int>(prompt.size()), 1, std::max(1, std::min(verify_context, room))));
    KvCache cache = pilot.models.target().make_cache(static_cast<int>(prompt.size()) + max_rows);
    ForwardOutput out;
    DS_TRY(pilot.models.target().prefill(cache, prompt, {}, out));
    std::vector<int> sizes;
    for (const int rows : verified_rows)
        if (rows <= max_rows && rows <= room) sizes.push_back(rows);
    std::vector<TokenId> tokens;
    for (int i = 0; i < max_rows; ++i) tokens.push_back(prompt[i % prompt.size()]);
    // Sizes alternate, so that a temporary slowdown of the machine does not affect only one size.
    std::vector<std::vector<double>> took(sizes.size());
    for (int repeat = 0; repeat < repeats; ++repeat) {
        for (std::size_t s = 0; s < sizes.size(); ++s) {
            const SequenceTokens sequence{&cache, std::span(tokens).first(sizes[s]), {}, nullptr};
            const TimeNs start = monotonic_ns();
            DS_TRY(pilot.models.target().forward({{&sequence, 1}, {}, {}, true}, out));
            took[s].push_back(static_cast<double>(monotonic_ns() - start));
        }
    }
    std::vector<std::pair<int, double>> times;
    for (std::size_t s = 0; s < sizes.size(); ++s) times.emplace_back(sizes[s], median(std::move(took[s])));
    // Fewer rows are never slower, except by noise.
    for (std::size_t s = times.size(); s-- > 1;)
        times[s - 1].second = std::min(times[s - 1].second, times[s].second);
    return times;
}

/// Decodes the first `count` conversations under a tree, and times verifications once. Returns no rounds
/// after the gate is cancelled.
Status decode(Pilot& pilot, const PilotHead& head, const TreeShape& tree, int tokens, std::size_t count,
              int max_rows, int repeats, PilotSink& sink) {
    if (pilot.conversations.empty() || pilot.gate.cancelled()) return {};
    DecodeOptions options = pilot.options;
    options.tree = to_tree_spec(tree);
    options.max_new = std::min(options.max_new, tokens);
    options.calibration_rounds = 0;
    options.full_shadow_ns = 0;
    options.shadows.clear();
    options.span_interval = 1;  // a pilot is short
    RowIds ids;
    CaptureOutput capture_output;
    capture_output.sink = &sink;
    capture_output.ids = &ids;
    capture_output.run_id = ++ids.run;
    capture_output.run_start = monotonic_ns();
    PhaseRecorder phases;
    phases.set_enabled(true);
    DecodeSession session({pilot.models.target(), pilot.models.drafter(), head.head, head.full,
                           pilot.models.backend(), phases, pilot.gate, options, capture_output});
    RunHooks quiet;
    quiet.on_progress = pilot.hooks.on_progress;
    std::vector<Conversation> first = pilot.conversations;
    first.resize(std::min(first.size(), count));
    ConversationFeed feed(
        pilot.models.target(), std::move(first), {.chat = pilot.chat, .first_turns = true, .suite = ""},
        quiet,
        fmt::format("measuring to choose a tree{}{}: prompt", head.text.empty() ? "" : ", ", head.text));
    DS_TRY(session.run(feed));
    if (pilot.gate.cancelled()) {
        sink.rounds.clear();
        return {};
    }
    if (pilot.verify.empty()) {
        DS_ASSIGN(pilot.verify, time_verifications(pilot, max_rows, repeats));
    }
    pilot.rounds += static_cast<int>(sink.rounds.size());
    return {};
}

void add(Pilot& pilot, std::vector<SweepSetting> forecasts, const std::string& head) {
    for (SweepSetting& one : forecasts) {
        one.head = head;
        one.tree = to_text(to_tree_spec(one.shape));
        pilot.forecasts.push_back(std::move(one));
    }
    std::ranges::stable_sort(pilot.forecasts, [](const SweepSetting& a, const SweepSetting& b) {
        return a.speedup() != b.speedup() ? a.speedup() > b.speedup() : is_simpler(a, b);
    });
}

/// Forecasts chains from a chain's rounds, or grown trees from a tree's rounds, so that neither depth limits
/// the other.
Status measure(Pilot& pilot, const PilotHead& head, const TreeShape& shape) {
    pilot.hooks.report(0, "measuring for --tree auto");
    PilotSink sink(shape.depth);
    DS_TRY(decode(pilot, head, shape, pilot_tokens, pilot_conversations,
                  std::max(pilot.tree.nodes, pilot.chain.nodes), verify_repeats, sink));
    std::vector<SweepSetting> forecasts = forecast_trees(sink.rounds, shape, sink.costs(pilot.verify));
    if (shape.topk > 1) std::erase_if(forecasts, [](const SweepSetting& one) { return one.shape.topk == 1; });
    add(pilot, std::move(forecasts), head.text);
    return {};
}

Status measure_trees(Pilot& pilot, const PilotHead& head) {
    return pilot.tree == pilot.chain ? Status() : measure(pilot, head, pilot.tree);
}

/// --tree quick: forecasts the trees of `known`, whose acceptance is given, from the times of a few rounds.
/// Takes about 0.1 s per head on the demo model.
Status measure_costs(Pilot& pilot, const PilotHead& head, const std::vector<TreeAcceptance>& known) {
    if (known.empty()) return {};
    const TreeShape largest =
        std::ranges::max(known, {}, [](const TreeAcceptance& one) { return one.tree.nodes; }).tree;
    PilotSink sink(largest.depth);
    DS_TRY(decode(pilot, head, largest, quick_tokens, 1, largest.nodes, quick_repeats, sink));
    if (pilot.conversations.empty() || pilot.gate.cancelled()) return {};
    std::vector<SweepSetting> forecasts;
    for (const TreeAcceptance& one : known) {
        forecasts.push_back(forecast_tree(one.tree, 1, sink.costs(pilot.verify)));
        forecasts.back().units = one.units;
    }
    add(pilot, std::move(forecasts), head.text);
    return {};
}

/// --head auto: measures each of `heads` with chains, and the fastest of them also with grown trees. A head's
/// cost per level is the same in both. A head that fails to load is skipped with a warning.
Status measure_heads(Pilot& pilot, const std::vector<HeadCandidate>& heads, LoadHead load) {
    constexpr std::size_t heads_under_trees = 3;  // our default
    for (std::size_t h = 0; h < heads.size(); ++h) {
        const auto loaded = load(h);
        if (loaded.ok())
            DS_TRY(measure(pilot, *loaded, pilot.chain));
        else
            log_warning("--head auto skips {}: {}", to_text(heads[h].spec), loaded.error().message);
    }
    std::vector<std::string> fastest;
    for (const SweepSetting& one : pilot.forecasts)
        if (std::ranges::find(fastest, one.head) == fastest.end()) fastest.push_back(one.head);
    fastest.resize(std::min(fastest.size(), heads_under_trees));
    for (std::size_t h = 0; h < heads.size(); ++h) {
        if (std::ranges::find(fastest, to_text(heads[h].spec)) == fastest.end()) continue;
        DS_ASSIGN(const PilotHead loaded, load(h));
        DS_TRY(measure_trees(pilot, loaded));
    }
    return {};
}

PilotHead loaded_head(const ResolvedRun& run, const ModelCache& models) {
    return {models.drafter().uses_head() ? to_text(*run.head) : "", models.head(), models.full_head()};
}

/// Measures every head that may be chosen. `use` loads the candidate of an index.
Status measure_all(Pilot& pilot, const ResolvedRun& run, const ModelCache& models, LoadHead use) {
    const bool quick = !run.shipped.empty();
    if (run.head_candidates.empty()) {
        const PilotHead given = loaded_head(run, models);
        if (quick) return measure_costs(pilot, given, run.shipped.at(given.text));
        DS_TRY(measure(pilot, given, pilot.chain));
        return measure_trees(pilot, given);
    }
    if (!quick) return measure_heads(pilot, run.head_candidates, use);
    for (std::size_t h = 0; h < run.head_candidates.size(); ++h) {
        DS_ASSIGN(const PilotHead loaded, use(h));
        DS_TRY(measure_costs(pilot, loaded, run.shipped.at(loaded.text)));
    }
    return {};
}

constexpr std::size_t max_kept = 16;  // forecasts; our default

/// What is kept of a forecast.
constexpr auto kept_fields = DS_FIELDS(SweepSetting, head, tree, round_ms, plain_ms);

/// The measured costs of --tree quick, so that each start on a machine chooses the same setting.
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
                       models.machine().cpu_name, run.config.backend, models.backend().pool().threads(),
                       run.config.pin ? ", pinned" : "", to_text(models.target().precision()),
                       model.ok() ? *model : "", weights_key(run), acceptance.ok() ? *acceptance : "",
                       DRAFTSCOPE_VERSION);
}

/// Returns the forecasts that were kept under `key`, fastest first; empty if there are none.
std::vector<SweepSetting> load_forecasts(const std::string& key, const ShippedAcceptance& shipped) {
    std::vector<SweepSetting> found;
    const auto file = JsonFile::read_if_present(forecasts_file().string());
    if (!file.ok() || !*file) return {};
    const auto kept = (*file)->objects(key.c_str());
    if (!kept.ok()) return {};
    for (const JsonFile& one : *kept) {
        SweepSetting& setting = found.emplace_back();
        if (!read_fields(required(kept_fields), one, setting).ok()) return {};
        const auto trees = shipped.find(setting.head);
        if (trees == shipped.end()) return {};
        for (const TreeAcceptance& known : trees->second)
            if (to_text(to_tree_spec(known.tree)) == setting.tree) {
                setting.shape = known.tree;
                setting.units = known.units;
            }
        if (setting.units.empty() || setting.round_ms <= 0 || setting.plain_ms <= 0) return {};
    }
    return found;
}

/// Replaces what is kept under `key`.
void save_forecasts(const std::string& key, std::span<const SweepSetting> forecasts) {
    json kept = read_kept();
    if (kept.size() >= max_kept) kept.clear();
    kept[key] = list_of(kept_fields)(forecasts);
    const fs::path path = forecasts_file();
    if (!path.is_absolute()) return;  // no home is known
    if (!replace_file(path, kept.dump(1, ' ', false, json::error_handler_t::replace)))
        log_warning("{}: the forecast can't be kept", path.string());
}

}  // namespace

TreeSpec to_tree_spec(const TreeShape& shape) {
    return {shape.depth, shape.topk, shape.nodes};
}

nlohmann::json to_json(std::span<const SweepSetting> forecasts) {
    return list_of(
        join(null_if_none(DS_FIELDS(SweepSetting, head)), DS_FIELDS(SweepSetting, tree, round_ms, speedup),
             field("tau", [](const SweepSetting& one) { return one.total().tau().value_or(1); })))(forecasts);
}

Status choose_tree(RunPlan& plan, ModelCache& models, DebugGate& gate, const RunHooks& hooks,
                   RunReport& report) {
    ResolvedRun& run = plan.run;
    const DrafterInfo& info = *find_drafter(run.drafter_id);
    if (!info.drafts) return {};
    if (!models.drafter().uses_head()) run.head_candidates.clear();
    Pilot pilot{models, plan.decode_options(models.shadows()), plan.chat, gate, hooks, plan.conversations};
    choose_pilot_trees(pilot, info.chains_only);
    const auto use = [&](std::size_t h) -> Result<PilotHead> {
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
        DS_TRY(measure_all(pilot, run, models, use));
        report.pilot_rounds = pilot.rounds;
        run.forecasts = pilot.forecasts;
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
