#include "app/jobs/sweep/sweep_job.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "app/jobs/profile/profile_job.h"
#include "app/jobs/replay/replay_models.h"
#include "app/jobs/resolve/artefacts.h"
#include "app/jobs/resolve/source_key.h"
#include "app/jobs/run/shard_files.h"
#include "app/jobs/sweep/pricing.h"
#include "app/jobs/sweep/saved_sweep.h"
#include "base/clock.h"
#include "capture/head_traits.h"
#include "capture/run_setting.h"
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

class Sweep {
  public:
    Sweep(const SweepConfig& config, const JobHooks& hooks, SweepModels& loaded)
        : config_(config), hooks_(hooks), loaded_(loaded) {}

    Result<SweepReport> run() {
        const TimeNs start = monotonic_ns();
        DS_TRY(check());
        if (!loaded_.recording) {
            hooks_.report(-1, "opening the recording");
            DS_ASSIGN(loaded_.recording, open_recording(config_.replay));
        }
        recording_ = loaded_.recording;
        DS_ASSIGN(report_.profile, read_profile(config_.profile));
        describe_recording();
        DS_TRY(resolve_all());
        if (!models_.target) {
            const ResolvedRun& first = drafters_.front().runs.front();
            DS_ASSIGN(models_, load_models(config_.replay, first, recording_, hooks_));
        }
        // The back end is the profile's: its costs may come from another machine than the recording.
        DS_TRY(check_profile(report_.profile, {"", std::string(kernels::to_text(models_.precision)),
                                               recording_->info().target.vocab}));
        DS_TRY(add_known());
        for (const DrafterPlan& plan : drafters_)
            for (const DrafterGroup& group : group_by_drafter(plan.runs)) DS_TRY(run_group(plan, group));
        rank_settings(report_);
        add_oracles();
        report_.seconds = seconds(monotonic_ns() - start);
        if (report_.rows.empty())
            return bad_input("sweep: no setting has a cost; {}", report_.skipped.empty()
                                                                     ? std::string("the grid is empty")
                                                                     : report_.skipped.front());
        if (!config_.save.empty()) {
            const Advice advice = advise(report_, config_.replay.model);
            DS_TRY(save_sweep(config_.save, report_, config_.replay.model, &advice));
        }
        return std::move(report_);
    }

  private:
    /// A drafter with its heads, resolved.
    struct DrafterPlan {
        std::string drafter;
        std::vector<ResolvedRun> runs;
    };

    Status check() const {
        if (config_.profile.empty())
            return bad_input(
                "--profile: sweep needs the costs of a machine; make one with draftscope profile-machine, or "
                "take a file of assets/profiles");
        for (const int batch : config_.batches)
            if (batch < 1) return bad_input("--batch {}: must be at least 1", batch);
        const TreeGrid& grid = config_.trees;
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
        if (list_trees(grid).empty())
            return bad_input("the grid of trees is empty; give --chain, or --topk with --nodes");
        if (config_.drafters.empty()) return bad_input("--drafters: names no drafter");
        return {};
    }

    void describe_recording() {
        const RecordingInfo& info = recording_->info();
        report_.recording = recording_->folder();
        report_.artefacts = config_.replay.artefacts;
        report_.max_new = config_.replay.max_new > 0 ? config_.replay.max_new : info.max_new;
        report_.temperature = info.sampling.temperature;
        conversations_ = conversation_of_prompts(info.prompts);
        for (const std::size_t one : conversations_)
            report_.conversations = std::max(report_.conversations, one + 1);
        report_.categories.resize(report_.conversations);
        for (std::size_t p = 0; p < conversations_.size(); ++p)
            report_.categories[conversations_[p]] = info.prompts[p].category;
        for (const RecordedPrompt& prompt : info.prompts) {
            const double generated = report_.max_new > 0 ? std::min(prompt.generated_tokens, report_.max_new)
                                                         : prompt.generated_tokens;
            const double steps = std::max(generated - 1, 0.0);  // the prefill makes the first token
            report_.context.positions += steps * (prompt.prompt_tokens + generated / 2);
            report_.context.tokens += steps;
        }
        context_ = report_.context.mean();
    }

    Status resolve_all() {
        std::vector<std::string> heads;
        for (const std::string& spec : config_.heads)
            for (std::string& one : expand_alternatives(spec)) heads.push_back(std::move(one));
        DS_TRY(check_count(heads.size()));
        for (const std::string& drafter : config_.drafters) {
            ReplayConfig replay = config_.replay;
            replay.drafter = drafter;
            replay.heads = drafter_traits(drafter).uses_head ? heads : std::vector<std::string>();
            if (!drafter_traits(drafter).uses_head) replay.artefacts.clear();
            DS_ASSIGN(auto runs, resolve_replayed_heads(replay, *recording_));
            const bool uses_head = drafter_traits(drafter).uses_head;
            for (ResolvedRun& run : runs) {
                if (uses_head) name_size(*run.head, run.artefacts, recording_->info().target.vocab);
                weights_[key_of(drafter, uses_head ? to_text(*run.head) : "", "")] = weights_key(run);
            }
            drafters_.push_back({drafter, std::move(runs)});
        }
        return {};
    }

    /// Checks the number of settings before any of them is resolved.
    Status check_count(std::size_t heads) const {
        const std::size_t trees = list_trees(config_.trees).size(), batches = config_.batches.size();
        std::size_t pairs = 0;
        for (const std::string& drafter : config_.drafters)
            pairs += drafter_traits(drafter).uses_head ? std::max<std::size_t>(heads, 1) : 1;
        if (pairs * trees * batches <= max_sweep_settings) return {};
        return bad_input(
            "sweep: {} settings, at most {}: {} pairs of drafter and head x {} trees x {} batch sizes; give "
            "fewer values of one of them",
            pairs * trees * batches, max_sweep_settings, pairs, trees, batches);
    }

    Status run_group(const DrafterPlan& plan, const DrafterGroup& group) {
        const ResolvedRun& first = plan.runs[group.heads.front()];
        std::shared_ptr<Drafter>& drafter =
            loaded_.drafters[fmt::format("{}\n{}", first.drafter_id, first.drafter_path)];
        DS_ASSIGN(const DraftModels models, load_draft_models(group, plan.runs, models_, hooks_, drafter));
        drafter = models.drafter;
        if (models.heads.empty()) {
            DS_TRY(run_head(plan, *models.drafter, "", {}));
            return save();
        }
        for (std::size_t i = 0; i < group.heads.size(); ++i) {
            DS_TRY(run_head(plan, *models.drafter, to_text(*plan.runs[group.heads[i]].head),
                            models.replayed[i]));
            DS_TRY(save());
        }
        return {};
    }

    /// Runs the trees of one head: a pass for each top-k, or a replay of each tree if rounds depend on
    /// earlier ones.
    Status run_head(const DrafterPlan& plan, Drafter& drafter, const std::string& head, ReplayHead replayed) {
        const std::vector<std::string> reasons = estimate_reasons(models_, replayed.head);
        for (const std::string& reason : reasons)
            if (std::ranges::find(report_.estimates, reason) == report_.estimates.end())
                report_.estimates.push_back(reason);
        const bool exact = reasons.empty();
        std::map<int, std::vector<TreeSpec>> by_topk;
        std::set<std::string> seen;
        for (TreeSpec tree : list_trees(config_.trees)) {
            if (drafter_traits(plan.drafter).chains_only && tree.topk > 1) continue;
            if (drafter.max_levels() > 0 && tree.levels() > drafter.max_levels()) continue;
            if (seen.insert(to_text(tree)).second &&
                !known_.contains(key_of(plan.drafter, head, to_text(tree))) && has_cost(plan, head, tree))
                by_topk[tree.topk].push_back(tree);
        }
        if (!has_path_ranks(replayed.head)) keep_promising(plan, head, by_topk);
        for (const auto& [topk, trees] : by_topk) {
            doing_ = fmt::format("{}, top-k {}", pair_text(plan.drafter, head), topk);
            hooks_.report(progress(), doing_);
            if (has_path_ranks(replayed.head)) {
                DS_TRY(share_pass(plan, drafter, head, replayed, trees, exact));
            } else {
                for (const TreeSpec& tree : trees)
                    DS_TRY(replay_tree(plan, drafter, head, replayed, tree, exact));
            }
            ++heads_done_;
        }
        return {};
    }

    static std::string key_of(const std::string& drafter, const std::string& head, const std::string& tree) {
        return fmt::format("{}\n{}\n{}", drafter, head, tree);
    }

    /// Drops all but the trees that would be fastest with the full head's acceptance at this head's cost.
    void keep_promising(const DrafterPlan& plan, const std::string& head,
                        std::map<int, std::vector<TreeSpec>>& by_topk) {
        if (config_.max_replays == 0) return;
        std::vector<std::pair<double, TreeSpec>> ranked;
        for (const auto& [topk, trees] : by_topk)
            for (const TreeSpec& tree : trees) ranked.emplace_back(promise(plan, head, tree), tree);
        std::ranges::stable_sort(ranked, std::greater(), &std::pair<double, TreeSpec>::first);
        ranked.resize(std::min(ranked.size(), config_.max_replays));
        by_topk.clear();
        for (auto& [speed, tree] : ranked) by_topk[tree.topk].push_back(std::move(tree));
    }
    double promise(const DrafterPlan& plan, const std::string& head, const TreeSpec& tree) const {
        const auto cost = predict_method(report_.profile, method_text(plan.drafter, head, to_text(tree)), 1,
                                         context_, config_.batches.front());
        const auto full = std::ranges::find_if(report_.settings, [&](const SweepSetting& one) {
            return one.drafter == plan.drafter && is_full_head(one.head) && one.tree == to_text(tree);
        });
        if (!cost.ok() || full == report_.settings.end()) return 0;
        return full->total().tau().value_or(0) / cost->total_ms();
    }

    ReplayOptions options(const TreeSpec& tree) const {
        ReplayOptions out;
        out.tree = tree;
        out.batch = lanes;
        out.max_new = config_.replay.max_new;
        out.covered_prob = false;
        out.cancelled = hooks_.cancelled;
        out.on_progress = [this](double) { hooks_.report(progress(), doing_); };
        return out;
    }

    Status share_pass(const DrafterPlan& plan, Drafter& drafter, const std::string& head, ReplayHead replayed,
                      const std::vector<TreeSpec>& trees, bool exact) {
        TreeSpec largest = trees.front();
        for (const TreeSpec& tree : trees) largest.depth = std::max(largest.depth, tree.depth);
        DS_ASSIGN(const auto ranks, path_ranks(*recording_, *models_.target, drafter, replayed, *models_.exec,
                                               options(largest)));
        ++report_.passes;
        if (largest.topk == 1) {
            ChainLengths& chain = chains_.emplace_back(chain_lengths(ranks, largest.levels()));
            chain.drafter = plan.drafter;
            chain.head = head;
            chain.weights = weights_[key_of(plan.drafter, head, "")];
        }
        for (const TreeSpec& tree : trees) {
            std::vector<std::vector<HeadRound>> rounds;
            for (const PathRanks& text : ranks) rounds.push_back(rounds_of_tree(text, tree));
            add(plan, head, tree, rounds, exact);
        }
        return {};
    }

    Status replay_tree(const DrafterPlan& plan, Drafter& drafter, const std::string& head,
                       ReplayHead replayed, const TreeSpec& tree, bool exact) {
        doing_ = fmt::format("{} @ {}", pair_text(plan.drafter, head), to_text(tree));
        hooks_.report(progress(), doing_);
        DS_ASSIGN(const ReplayResult result, replay(*recording_, *models_.target, drafter, {&replayed, 1},
                                                    *models_.exec, options(tree)));
        ++report_.passes;
        add(plan, head, tree, result.rounds.front(), exact);
        return {};
    }

    /// Returns whether the profile knows the setting's cost, so that no pass is made for nothing.
    bool has_cost(const DrafterPlan& plan, const std::string& head, const TreeSpec& tree) {
        const auto cost = predict_method(report_.profile, method_text(plan.drafter, head, to_text(tree)), 1,
                                         context_, config_.batches.front());
        if (!cost.ok()) skip(plan.drafter, head, cost.error());
        return cost.ok();
    }

    /// Notes why settings of a head have no cost, each reason once.
    void skip(std::string_view drafter, const std::string& head, const Error& error) {
        std::string reason = fmt::format("{}: {}", pair_text(drafter, head), error.message);
        if (std::ranges::find(report_.skipped, reason) == report_.skipped.end())
            report_.skipped.push_back(std::move(reason));
    }

    /// Adds the settings of a tree from its rounds by prompt.
    void add(const DrafterPlan& plan, const std::string& head, const TreeSpec& tree,
             const std::vector<std::vector<HeadRound>>& rounds, bool exact) {
        SweepSetting setting;
        setting.drafter = plan.drafter;
        setting.head = head;
        setting.tree = to_text(tree);
        setting.weights = weights_[key_of(plan.drafter, head, "")];
        setting.shape = {tree.depth, tree.topk, tree.nodes};
        setting.exact = exact;
        setting.units.assign(report_.conversations, {.accepted = 0});
        for (std::size_t p = 0; p < rounds.size(); ++p)
            for (const HeadRound& round : rounds[p]) {
                SweepUnit& unit = setting.units[conversations_[p]];
                unit.rounds += 1;
                unit.committed += round.committed;
                unit.positions += round.prefix;
                unit.accepted += round.accepted;
            }
        add(std::move(setting));
    }

    /// Adds a setting once for each batch, with its predicted times.
    void add(SweepSetting setting) {
        for (const int batch : config_.batches) {
            setting.batch = batch;
            const Status priced = price_setting(report_.profile, context_, setting);
            if (priced.ok())
                report_.settings.push_back(setting);
            else
                skip(setting.drafter, setting.head, priced.error());
        }
    }

    /// Returns what identifies the acceptance of this sweep.
    std::string source() const {
        const RecordingInfo& info = recording_->info();
        const std::string& model = drafters_.front().runs.front().config.model;
        std::string text =
            fmt::format("{}, {} tokens, T={:g}, {}, recording {}", info.target.name, report_.max_new,
                        info.sampling.temperature, kernels::to_text(models_.precision),
                        recording_key(*recording_, model));
        const Shard& shard = config_.replay.shard;
        return shard.whole() ? text : fmt::format("{}, {}", text, shard_text(shard));
    }

    /// Returns the settings of the file to save to, without those whose weights changed.
    Result<std::vector<SweepSetting>> load_known() {
        DS_ASSIGN(SavedSweep saved, load_sweep(config_.save, report_.source));
        if (saved.others > 0)
            report_.notes.push_back(
                fmt::format("{}: {} setting{} of another recording or length not used: {}; this sweep is {}",
                            config_.save, saved.others, saved.others == 1 ? "" : "s", saved.other_source,
                            report_.source));
        std::map<std::string, std::size_t> changed;
        std::erase_if(saved.settings, [&](const SweepSetting& one) {
            const auto now = weights_.find(key_of(one.drafter, one.head, ""));
            if (now == weights_.end() || now->second == one.weights) return false;
            ++changed[pair_text(one.drafter, one.head)];
            return true;
        });
        for (const auto& [pair, count] : changed)
            report_.notes.push_back(
                fmt::format("{}: {} setting{} of {} {} not used, because the weights changed", config_.save,
                            count, count == 1 ? "" : "s", pair, count == 1 ? "is" : "are"));
        for (OracleLine& line : saved.oracles)
            if (!is_changed(line)) known_oracles_.push_back(std::move(line));
        return std::move(saved.settings);
    }

    bool is_changed(const OracleLine& line) const {
        std::string weights;
        for (const std::string& drafter : line.drafters) {
            const bool last = &drafter == &line.drafters.back();
            const auto now = weights_.find(key_of(drafter, last ? line.head : "", ""));
            if (now == weights_.end()) return false;
            weights += now->second;
        }
        return weights != line.weights;
    }

    /// Sets the bounds of the report: those of this sweep's passes, and the file's of other chains.
    void add_oracles() {
        std::map<std::string, OracleLine> lines;
        const auto keep = [&](OracleLine line) {
            OracleLine& known = lines[fmt::format("{}\n{}", fmt::join(line.drafters, "+"), line.head)];
            if (known.levels <= line.levels) known = std::move(line);
        };
        for (const OracleLine& line : known_oracles_) keep(line);
        for (const ChainLengths& one : chains_) {
            keep(oracle_line({&one}));
            if (!drafter_traits(one.drafter).uses_head) continue;
            for (const ChainLengths& other : chains_)
                if (!drafter_traits(other.drafter).uses_head) keep(oracle_line({&other, &one}));
        }
        report_.oracles.clear();
        for (auto& [name, line] : lines)
            for (const int batch : config_.batches) {
                line.batch = batch;
                if (price_oracle(report_.profile, context_, line).ok()) report_.oracles.push_back(line);
            }
    }

    /// Takes over the settings that are known.
    Status add_known() {
        report_.source = source();
        std::vector<SweepSetting> known = config_.known;
        if (!config_.save.empty()) {
            DS_ASSIGN(known, load_known());
        }
        for (SweepSetting& one : known) {
            if (one.units.size() != report_.conversations)
                return bad_input("{}: table sweep: {} x {} has {} conversations, the recording has {}",
                                 config_.save, one.drafter, one.head, one.units.size(),
                                 report_.conversations);
            if (known_.insert(key_of(one.drafter, one.head, one.tree)).second) add(std::move(one));
        }
        return {};
    }

    /// Saves what is known so far, so that an interrupted sweep goes on from there.
    Status save() {
        if (config_.save.empty()) return {};
        rank_settings(report_);
        add_oracles();
        return save_sweep(config_.save, report_, config_.replay.model, nullptr);
    }

    double progress() const {
        std::size_t heads = 0;
        for (const DrafterPlan& plan : drafters_) heads += plan.runs.size();
        const std::size_t topks = config_.trees.topks.size() + (config_.trees.chain > 0 ? 1 : 0);
        return static_cast<double>(heads_done_) /
               static_cast<double>(std::max<std::size_t>(heads * topks, 1));
    }

    const SweepConfig& config_;
    const JobHooks& hooks_;
    SweepModels& loaded_;
    std::shared_ptr<const DecodeRecording> recording_;
    ReplayModels& models_ = loaded_.models;
    std::vector<DrafterPlan> drafters_;
    std::set<std::string> known_;                 ///< keys of the known settings
    std::map<std::string, std::string> weights_;  ///< weights_key() by drafter and head
    std::vector<std::size_t> conversations_;      ///< by prompt
    double context_ = 0;                          ///< mean committed tokens before a step of plain decoding
    std::vector<ChainLengths> chains_;            ///< of the passes with top-k 1
    std::vector<OracleLine> known_oracles_;
    std::size_t heads_done_ = 0;
    std::string doing_;  ///< what progress reports say
    SweepReport report_;
};

}  // namespace

std::vector<TreeSpec> list_trees(const TreeGrid& grid) {
    std::vector<TreeSpec> trees;
    for (int length = 1; length <= grid.chain; ++length) trees.push_back({length - 1, 1, length + 1});
    for (const int topk : grid.topks)
        for (int depth = 0; depth <= grid.depth; ++depth)
            for (const int nodes : grid.nodes) {
                // Fewer nodes than levels leave levels unused; more than candidates are the same tree.
                const int candidates = 1 + topk + depth * topk * topk;
                if (nodes >= depth + 2 && nodes <= candidates) trees.push_back({depth, topk, nodes});
            }
    return trees;
}

Result<SweepReport> run_sweep(const SweepConfig& config, const JobHooks& hooks, SweepModels& loaded) {
    return Sweep(config, hooks, loaded).run();
}

Result<SweepReport> run_sweep(const SweepConfig& config, const JobHooks& hooks) {
    SweepModels loaded;
    return run_sweep(config, hooks, loaded);
}

}  // namespace draftscope
