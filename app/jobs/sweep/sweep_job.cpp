#include "app/jobs/sweep/sweep_job.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <set>

#include "app/jobs/profile/profile_job.h"
#include "app/jobs/resolve/artefacts.h"
#include "app/jobs/resolve/run_weights.h"
#include "app/jobs/run/pool.h"
#include "app/jobs/sweep/pricing.h"
#include "app/jobs/sweep/saved_sweep.h"
#include "base/clock.h"
#include "base/format_count.h"
#include "capture/head_traits.h"
#include "engine/draft/drafter.h"
#include "engine/draft/registry.h"
#include "engine/heads/head_common.h"
#include "engine/heads/registry.h"
#include "engine/replay/path_ranks.h"

namespace draftscope {
namespace {

/// Prompts drafted in lockstep; more rows share the reading of the weights.
constexpr int lanes = 32;

/// Names the size of a head that takes it from its file or the vocabulary, because its cost depends on it.
void name_size(HeadSpec& head, const HeadFiles& files, int vocab) {
    const HeadInfo* info = find_head(head.id);
    if (info == nullptr || head.params.contains(info->size.name) || default_size(*info) > 0) return;
    std::string size = fitted_size(head, files);
    if (size.empty() && info->size.default_parts > 0)
        size = std::to_string(vocab_fraction(vocab, info->size.default_parts));
    if (!size.empty()) head.params.emplace(info->size.name, size);
}

/// A drafter with its heads, resolved.
struct DrafterPlan {
    std::string drafter;
    std::vector<ResolvedRun> runs;
    std::vector<std::string> heads;  ///< of `runs`; "" if the drafter uses none
};

/// A sweep in progress.
struct Sweep {
    const SweepConfig& config;
    const JobHooks& hooks;
    SweepModels& loaded;
    SweepReport report = {};
    std::vector<DrafterPlan> drafters = {};
    std::map<std::pair<std::string, std::string>, std::string> weights = {};  ///< by drafter and head
    std::set<SettingKey> known = {};              ///< settings of batch 1 whose acceptance is known
    std::vector<std::size_t> conversations = {};  ///< by prompt
    double context = 0;                           ///< mean committed tokens before a step of plain decoding
    std::vector<ChainLengths> chains = {};        ///< of the passes with top-k 1
    std::vector<OracleLine> known_oracles = {};
    std::size_t heads_done = 0;
    std::string doing = {};  ///< what progress reports say

    const DecodeRecording& recording() const { return *loaded.recording; }
    ReplayModels& models() const { return loaded.models; }
    void report_progress() const;
};

/// A head of a drafter that is swept.
struct SweptHead {
    const DrafterPlan& plan;
    Drafter& drafter;
    std::string head;  ///< "" = none
    ReplayHead replayed;
    bool exact = true;

    SettingKey key(const TreeSpec& tree) const { return {plan.drafter, head, to_text(tree), 1}; }
};

void Sweep::report_progress() const {
    std::size_t heads = 0;
    for (const DrafterPlan& plan : drafters) heads += plan.runs.size();
    const std::size_t steps = heads * (config.trees.topks.size() + (config.trees.chain > 0 ? 1 : 0));
    hooks.report(static_cast<double>(heads_done) / static_cast<double>(std::max<std::size_t>(steps, 1)),
                 doing);
}

Status check(const SweepConfig& config) {
    if (config.profile.empty())
        return bad_input(
            "--profile: sweep needs the costs of a machine; make one with draftscope profile-machine, or "
            "take a file of assets/profiles");
    for (const int batch : config.batches)
        if (batch < 1) return bad_input("--batch {}: must be at least 1", batch);
    const TreeGrid& grid = config.trees;
    if (grid.chain < 0 || grid.chain > max_tree_levels)
        return bad_input("--chain {}: must be 0 to {}", grid.chain, max_tree_levels);
    if (grid.depth < 0 || grid.depth >= max_tree_levels)
        return bad_input("--depth {}: must be 0 to {}", grid.depth, max_tree_levels - 1);
    for (const int topk : grid.topks)
        if (topk < 2 || topk > max_tree_topk)
            return bad_input("--topk {}: must be 2 to {}", topk, max_tree_topk);
    for (const int nodes : grid.nodes)
        if (nodes < 2 || nodes > max_tree_nodes)
            return bad_input("--nodes {}: must be 2 to {}", nodes, max_tree_nodes);
    for (const std::string& spec : grid.adaptive) {
        DS_ASSIGN(const TreeSpec tree, parse_tree_spec(spec));
        if (!tree.adaptive) return bad_input("--adaptive {}: chooses no length", spec);
    }
    if (list_trees(grid).empty())
        return bad_input("the grid of trees is empty; give --chain, or --topk with --nodes");
    if (config.drafters.empty()) return bad_input("--drafters: names no drafter");
    return {};
}

void describe_recording(Sweep& sweep) {
    const RecordingInfo& info = sweep.recording().info();
    SweepReport& report = sweep.report;
    report.recording = sweep.recording().folder();
    report.run.model = sweep.config.replay.model;
    report.run.artefacts = sweep.config.replay.artefacts;
    report.max_new = sweep.config.replay.max_new > 0 ? sweep.config.replay.max_new : info.max_new;
    report.temperature = info.sampling.temperature;
    sweep.conversations = conversation_of_prompts(info.prompts);
    for (const std::size_t one : sweep.conversations)
        report.conversations = std::max(report.conversations, one + 1);
    report.categories.resize(report.conversations);
    for (std::size_t p = 0; p < sweep.conversations.size(); ++p)
        report.categories[sweep.conversations[p]] = info.prompts[p].category;
    for (const RecordedPrompt& prompt : info.prompts) {
        const double generated =
            report.max_new > 0 ? std::min(prompt.generated_tokens, report.max_new) : prompt.generated_tokens;
        const double steps = std::max(generated - 1, 0.0);  // the prefill makes the first token
        report.context.positions += steps * (prompt.prompt_tokens + generated / 2);
        report.context.tokens += steps;
    }
    sweep.context = report.context.mean();
}

/// Checks the number of settings before any of them is resolved.
Status check_count(const SweepConfig& config, std::size_t heads) {
    const std::size_t trees = list_trees(config.trees).size(), batches = config.batches.size();
    std::size_t pairs = 0;
    for (const std::string& drafter : config.drafters)
        pairs += drafter_traits(drafter).uses_head ? std::max<std::size_t>(heads, 1) : 1;
    if (pairs * trees * batches <= max_sweep_settings) return {};
    return bad_input(
        "sweep: {} settings, at most {}: {} pairs of drafter and head x {} trees x {} batch sizes; give "
        "fewer values of one of them",
        pairs * trees * batches, max_sweep_settings, pairs, trees, batches);
}

Status resolve_all(Sweep& sweep) {
    std::vector<std::string> heads;
    for (const std::string& spec : sweep.config.heads)
        for (std::string& one : expand_alternatives(spec)) heads.push_back(std::move(one));
    DS_TRY(check_count(sweep.config, heads.size()));
    for (const std::string& drafter : sweep.config.drafters) {
        const bool uses_head = drafter_traits(drafter).uses_head;
        ReplayConfig replay = sweep.config.replay;
        replay.drafter = drafter;
        if (uses_head)
            replay.heads = heads;
        else
            replay.artefacts.clear();
        DrafterPlan plan{drafter, {}, {}};
        DS_ASSIGN(plan.runs, resolve_replayed_heads(replay, sweep.recording()));
        for (ResolvedRun& run : plan.runs) {
            if (uses_head) name_size(*run.head, run.artefacts, sweep.recording().info().target.vocab);
            plan.heads.push_back(uses_head ? to_text(*run.head) : "");
            sweep.weights[{drafter, plan.heads.back()}] = weights_key(run);
        }
        sweep.drafters.push_back(std::move(plan));
    }
    return {};
}

Result<StepCost> predict(const Sweep& sweep, SettingKey setting) {
    // The longest draft stands for those of adaptive length.
    if (const auto tree = parse_tree_spec(setting.tree); tree.ok() && tree->adaptive)
        setting.tree = fmt::format("chain={}", tree->levels());
    return predict_method(sweep.report.profile, method_text(setting), 1, sweep.context,
                          sweep.config.batches.front());
}

/// Notes why settings of a head have no cost, each reason once.
void skip(Sweep& sweep, const SettingKey& setting, const Error& error) {
    note_once(sweep.report.skipped,
              fmt::format("{}: {}", pair_text(setting.drafter, setting.head), error.message));
}

/// Adds a setting once for each batch, with its predicted times.
void add_priced(Sweep& sweep, SweepSetting setting) {
    for (const int batch : sweep.config.batches) {
        setting.batch = batch;
        const Status priced = price_setting(sweep.report.profile, sweep.context, setting);
        if (priced.ok())
            sweep.report.settings.push_back(setting);
        else
            skip(sweep, setting, priced.error());
    }
}

/// Adds the settings of a tree from its rounds by prompt.
void add(Sweep& sweep, const SweptHead& of, const TreeSpec& tree,
         const std::vector<std::vector<HeadRound>>& rounds) {
    SweepSetting setting;
    static_cast<SettingKey&>(setting) = of.key(tree);
    setting.weights = sweep.weights[{of.plan.drafter, of.head}];
    setting.shape = {tree.depth, tree.topk, tree.nodes};
    setting.exact = of.exact;
    if (tree.adaptive) setting.lengths.resize(tree.nodes);
    setting.units.assign(sweep.report.conversations, {.accepted = 0});
    for (std::size_t p = 0; p < rounds.size(); ++p)
        for (const HeadRound& round : rounds[p]) {
            SweepUnit& unit = setting.units[sweep.conversations[p]];
            unit.rounds += 1;
            unit.committed += round.committed;
            unit.positions += round.prefix;
            unit.accepted += round.accepted;
            if (tree.adaptive) setting.lengths[round.tree_nodes - 1] += 1;
        }
    add_priced(sweep, std::move(setting));
}

/// Drops all but the trees that would be fastest with the full head's acceptance at this head's cost.
void keep_promising(const Sweep& sweep, const SweptHead& of, std::map<int, std::vector<TreeSpec>>& by_topk) {
    if (sweep.config.max_replays == 0) return;
    const auto promise = [&](const TreeSpec& tree) {
        const auto cost = predict(sweep, of.key(tree));
        const auto full = std::ranges::find_if(sweep.report.settings, [&](const SweepSetting& one) {
            return one.drafter == of.plan.drafter && is_full_head(one.head) && one.tree == to_text(tree);
        });
        if (!cost.ok() || full == sweep.report.settings.end()) return 0.0;
        return full->total().tau().value_or(0) / cost->total_ms();
    };
    std::vector<std::pair<double, TreeSpec>> ranked;
    for (const auto& [topk, trees] : by_topk)
        for (const TreeSpec& tree : trees) ranked.emplace_back(promise(tree), tree);
    std::ranges::stable_sort(ranked, std::greater(), &std::pair<double, TreeSpec>::first);
    ranked.resize(std::min(ranked.size(), sweep.config.max_replays));
    by_topk.clear();
    for (auto& [speed, tree] : ranked) by_topk[tree.topk].push_back(std::move(tree));
}

ReplayOptions replay_options(const Sweep& sweep, const TreeSpec& tree) {
    ReplayOptions out;
    out.tree = tree;
    out.batch = lanes;
    out.max_new = sweep.config.replay.max_new;
    out.covered_prob = false;
    out.cancelled = sweep.hooks.cancelled;
    out.on_progress = [&sweep](double) { sweep.report_progress(); };
    return out;
}

/// Makes one pass for all trees of a top-k.
Status share_pass(Sweep& sweep, const SweptHead& of, const std::vector<TreeSpec>& trees) {
    TreeSpec largest = trees.front();
    largest.adaptive = nullptr;
    for (const TreeSpec& tree : trees) largest.depth = std::max(largest.depth, tree.depth);
    const ReplayModels& models = sweep.models();
    DS_ASSIGN(const auto ranks, path_ranks(sweep.recording(), *models.target, of.drafter, of.replayed,
                                           *models.backend, replay_options(sweep, largest)));
    ++sweep.report.passes;
    if (largest.topk == 1) {
        ChainLengths& chain = sweep.chains.emplace_back(chain_lengths(ranks, largest.levels()));
        chain.drafter = of.plan.drafter;
        chain.head = of.head;
        chain.weights = sweep.weights[{of.plan.drafter, of.head}];
    }
    for (const TreeSpec& tree : trees) {
        std::vector<std::vector<HeadRound>> rounds;
        for (const PathRanks& text : ranks) rounds.push_back(rounds_of_tree(text, tree));
        add(sweep, of, tree, rounds);
    }
    return {};
}

Status replay_tree(Sweep& sweep, const SweptHead& of, const TreeSpec& tree) {
    sweep.doing = fmt::format("{} @ {}", pair_text(of.plan.drafter, of.head), to_text(tree));
    sweep.report_progress();
    const ReplayModels& models = sweep.models();
    DS_ASSIGN(const ReplayResult result,
              replay(sweep.recording(), *models.target, of.drafter, {&of.replayed, 1}, *models.backend,
                     replay_options(sweep, tree)));
    ++sweep.report.passes;
    add(sweep, of, tree, result.rounds.front());
    return {};
}

/// Runs the trees of one head: a pass for each top-k, or a replay of each tree if rounds depend on earlier
/// ones.
Status run_head(Sweep& sweep, SweptHead of) {
    const std::vector<std::string> reasons = estimate_reasons(sweep.models(), of.replayed.head);
    for (const std::string& reason : reasons) note_once(sweep.report.estimates, reason);
    of.exact = reasons.empty();
    std::map<int, std::vector<TreeSpec>> by_topk;
    std::set<std::string> seen;
    for (const TreeSpec& tree : list_trees(sweep.config.trees)) {
        if (drafter_traits(of.plan.drafter).chains_only && tree.topk > 1) continue;
        if (of.drafter.properties().max_levels > 0 && tree.levels() > of.drafter.properties().max_levels)
            continue;
        if (tree.adaptive && !check_tree(of.drafter, tree).ok()) continue;
        if (!seen.insert(to_text(tree)).second || sweep.known.contains(of.key(tree))) continue;
        // A tree without a cost needs no pass.
        if (const auto cost = predict(sweep, of.key(tree)); !cost.ok())
            skip(sweep, of.key(tree), cost.error());
        else
            by_topk[tree.topk].push_back(tree);
    }
    const bool shared = has_path_ranks(of.drafter, of.replayed.head);
    if (!shared) keep_promising(sweep, of, by_topk);
    for (const auto& [topk, trees] : by_topk) {
        sweep.doing = fmt::format("{}, top-k {}", pair_text(of.plan.drafter, of.head), topk);
        sweep.report_progress();
        if (shared) {
            DS_TRY(share_pass(sweep, of, trees));
        } else {
            for (const TreeSpec& tree : trees) DS_TRY(replay_tree(sweep, of, tree));
        }
        ++sweep.heads_done;
    }
    return {};
}

/// Sets the bounds of the report: those of this sweep's passes, and the file's of other chains.
void add_oracles(Sweep& sweep) {
    std::map<std::pair<std::vector<std::string>, std::string>, OracleLine> lines;
    const auto keep = [&](OracleLine line) {
        OracleLine& known = lines[{line.drafters, line.head}];
        if (known.levels <= line.levels) known = std::move(line);
    };
    for (const OracleLine& line : sweep.known_oracles) keep(line);
    for (const ChainLengths& one : sweep.chains) {
        keep(oracle_line({&one}));
        if (!drafter_traits(one.drafter).uses_head) continue;
        for (const ChainLengths& other : sweep.chains)
            if (!drafter_traits(other.drafter).uses_head) keep(oracle_line({&other, &one}));
    }
    sweep.report.oracles.clear();
    for (auto& [name, line] : lines)
        for (const int batch : sweep.config.batches) {
            line.batch = batch;
            if (price_oracle(sweep.report.profile, sweep.context, line).ok())
                sweep.report.oracles.push_back(line);
        }
}

/// Ranks and saves what is known so far, so that an interrupted sweep goes on from there.
Status save(Sweep& sweep) {
    if (sweep.config.save.empty()) return {};
    rank_settings(sweep.report.settings);
    add_oracles(sweep);
    return save_sweep(sweep.config.save, sweep.report);
}

Status run_group(Sweep& sweep, const DrafterPlan& plan, const DrafterGroup& group) {
    const ResolvedRun& first = plan.runs[group.heads.front()];
    std::shared_ptr<Drafter>& drafter = sweep.loaded.drafters[{first.drafter_name(), first.drafter_path}];
    DS_ASSIGN(const DraftModels models,
              load_draft_models(group, plan.runs, sweep.models(), sweep.hooks, drafter));
    drafter = models.drafter;
    if (models.heads.empty()) DS_TRY(run_head(sweep, {plan, *drafter, "", {}}));
    for (std::size_t i = 0; i < models.heads.size(); ++i) {
        DS_TRY(run_head(sweep, {plan, *drafter, plan.heads[group.heads[i]], models.replayed[i]}));
        DS_TRY(save(sweep));
    }
    return models.heads.empty() ? save(sweep) : Status();
}

/// Returns what identifies the acceptance of this sweep.
std::string source_of(const Sweep& sweep) {
    const RecordingInfo& info = sweep.recording().info();
    const std::string& model = sweep.drafters.front().runs.front().config.model;
    std::string text =
        fmt::format("{}, {} tokens, T={:g}, {}, recording {}", info.target.name, sweep.report.max_new,
                    info.sampling.temperature, kernels::to_text(sweep.models().precision),
                    recording_key(sweep.recording(), model));
    const Shard& shard = sweep.config.replay.shard;
    return shard.whole() ? text : fmt::format("{}, {}", text, shard_text(shard));
}

bool is_changed(const Sweep& sweep, const OracleLine& line) {
    std::string weights;
    for (const std::string& drafter : line.drafters) {
        const bool last = &drafter == &line.drafters.back();
        const auto now = sweep.weights.find({drafter, last ? line.head : ""});
        if (now == sweep.weights.end()) return false;
        weights += now->second;
    }
    return weights != line.weights;
}

/// Returns the settings of the file to save to, without those whose weights changed.
Result<std::vector<SweepSetting>> load_known(Sweep& sweep) {
    std::vector<SweepSetting> settings;
    const std::string& file = sweep.config.save;
    std::error_code error;
    if (!std::filesystem::exists(file, error)) return settings;
    DS_ASSIGN(const auto saved, load_sweeps(file));
    std::size_t others = 0;
    std::string other_source;
    std::map<std::string, std::size_t> changed;
    for (const auto& one : saved) {
        if (one->source != sweep.report.source) {
            others += one->settings.size();
            other_source = one->source;
            continue;
        }
        for (const SweepSetting& setting : one->settings) {
            const auto now = sweep.weights.find({setting.drafter, setting.head});
            if (now == sweep.weights.end() || now->second == setting.weights)
                settings.push_back(setting);
            else
                ++changed[pair_text(setting.drafter, setting.head)];
        }
        for (const OracleLine& line : one->oracles)
            if (!is_changed(sweep, line)) sweep.known_oracles.push_back(line);
    }
    if (others > 0)
        sweep.report.notes.push_back(
            fmt::format("{}: {} of another recording or length not used: {}; this sweep is {}", file,
                        format_count(others, "setting"), other_source, sweep.report.source));
    for (const auto& [pair, count] : changed)
        sweep.report.notes.push_back(fmt::format("{}: {} of {} {} not used, because the weights changed",
                                                 file, format_count(count, "setting"), pair,
                                                 count == 1 ? "is" : "are"));
    return settings;
}

/// Takes over the settings that are known.
Status add_known(Sweep& sweep) {
    sweep.report.source = source_of(sweep);
    std::vector<SweepSetting> known = sweep.config.known;
    if (!sweep.config.save.empty()) {
        DS_ASSIGN(known, load_known(sweep));
    }
    for (SweepSetting& one : known) {
        if (one.units.size() != sweep.report.conversations)
            return bad_input("{}: table sweep: {} x {} has {} conversations, the recording has {}",
                             sweep.config.save, one.drafter, one.head, one.units.size(),
                             sweep.report.conversations);
        one.batch = 1;
        if (sweep.known.insert(one).second) add_priced(sweep, std::move(one));
    }
    return {};
}

}  // namespace

std::vector<TreeSpec> list_trees(const TreeGrid& grid) {
    std::vector<TreeSpec> trees;
    for (int length = 1; length <= grid.chain; ++length) trees.push_back({length - 1, 1, length + 1});
    for (const std::string& spec : grid.adaptive)
        if (auto tree = parse_tree_spec(spec); tree.ok()) trees.push_back(std::move(*tree));
    for (const int topk : grid.topks)
        for (int depth = 0; depth <= grid.depth; ++depth)
            for (const int nodes : grid.nodes) {
                // Fewer nodes than levels leave levels unused; more than candidates are the same tree.
                const int candidates = 1 + topk + depth * topk * topk;
                if (nodes >= depth + 2 && nodes <= candidates) trees.push_back({depth, topk, nodes});
            }
    return trees;
}

Result<SweepReport> sweep_settings(const SweepConfig& config, const JobHooks& hooks, SweepModels& loaded) {
    const TimeNs start = monotonic_ns();
    DS_TRY(check(config));
    if (!loaded.recording) {
        hooks.report(-1, "opening the recording");
        DS_ASSIGN(loaded.recording, open_recording(config.replay));
    }
    Sweep sweep{config, hooks, loaded};
    DS_ASSIGN(MachineProfile profile, read_profile(config.profile));
    set_profile(std::move(profile), sweep.report);
    describe_recording(sweep);
    DS_TRY(resolve_all(sweep));
    if (!loaded.models.target) {
        const ResolvedRun& first = sweep.drafters.front().runs.front();
        DS_ASSIGN(loaded.models, load_models(config.replay, first, loaded.recording, hooks));
    }
    // The back end is the profile's: its costs may come from another machine than the recording.
    DS_TRY(check_profile(sweep.report.profile, {"", std::string(kernels::to_text(loaded.models.precision)),
                                                sweep.recording().info().target.vocab}));
    DS_TRY(add_known(sweep));
    for (const DrafterPlan& plan : sweep.drafters)
        for (const DrafterGroup& group : group_by_drafter(plan.runs)) DS_TRY(run_group(sweep, plan, group));
    rank_settings(sweep.report.settings);
    add_oracles(sweep);
    sweep.report.seconds = seconds(monotonic_ns() - start);
    if (sweep.report.settings.empty())
        return bad_input("sweep: no setting has a cost; {}", sweep.report.skipped.empty()
                                                                 ? std::string("the grid is empty")
                                                                 : sweep.report.skipped.front());
    return std::move(sweep.report);
}

Status finish_sweep(const SweepConfig& config, SweepReport& report) {
    report.advice = advise(report);
    return config.save.empty() ? Status() : save_sweep(config.save, report);
}

Result<SweepReport> run_sweep(const SweepConfig& config, const JobHooks& hooks) {
    SweepModels loaded;
    DS_ASSIGN(SweepReport report, sweep_settings(config, hooks, loaded));
    DS_TRY(finish_sweep(config, report));
    return report;
}

}  // namespace draftscope
