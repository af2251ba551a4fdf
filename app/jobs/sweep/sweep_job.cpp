#include "app/jobs/sweep/sweep_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "app/jobs/profile/profile_job.h"
#include "app/jobs/replay/replay_models.h"
#include "app/jobs/sweep/saved_sweep.h"
#include "base/clock.h"
#include "capture/head_traits.h"
#include "capture/run_setting.h"
#include "engine/draft/drafter.h"
#include "engine/draft/registry.h"
#include "engine/heads/registry.h"
#include "engine/replay/path_ranks.h"

namespace draftscope {
namespace {

/// Prompts drafted in lockstep; more rows share the reading of the weights.
constexpr int lanes = 32;

class Sweep {
  public:
    Sweep(const SweepConfig& config, const JobHooks& hooks) : config_(config), hooks_(hooks) {}

    Result<SweepReport> run() {
        const TimeNs start = monotonic_ns();
        DS_TRY(check());
        hooks_.report(-1, "opening the recording");
        DS_ASSIGN(recording_, open_recording(config_.replay));
        DS_ASSIGN(report_.profile, read_profile(config_.profile));
        describe_recording();
        DS_TRY(resolve_all());
        DS_ASSIGN(models_, load_models(config_.replay, drafters_.front().runs.front(), recording_, hooks_));
        // The back end is the profile's: its costs may come from another machine than the recording.
        DS_TRY(check_profile(report_.profile, {"", std::string(kernels::to_text(models_.precision)),
                                               recording_->info().target.vocab}));
        DS_TRY(add_known());
        for (const DrafterPlan& plan : drafters_)
            for (const DrafterGroup& group : group_by_drafter(plan.runs)) DS_TRY(run_group(plan, group));
        finish_rows();
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
        report_.max_new = config_.replay.max_new > 0 ? config_.replay.max_new : info.max_new;
        report_.temperature = info.sampling.temperature;
        conversations_ = conversation_of_prompts(info);
        for (const std::size_t one : conversations_)
            report_.conversations = std::max(report_.conversations, one + 1);
        report_.categories.resize(report_.conversations);
        for (std::size_t p = 0; p < conversations_.size(); ++p)
            report_.categories[conversations_[p]] = info.prompts[p].category;
        double positions = 0, tokens = 0;
        for (const RecordedPrompt& prompt : info.prompts) {
            const double generated = report_.max_new > 0 ? std::min(prompt.generated_tokens, report_.max_new)
                                                         : prompt.generated_tokens;
            positions += generated * (prompt.prompt_tokens + generated / 2);
            tokens += generated;
        }
        context_ = tokens > 0 ? positions / tokens : 0;
    }

    Status resolve_all() {
        std::vector<std::string> heads;
        for (const std::string& spec : config_.heads)
            for (std::string& one : expand_alternatives(spec)) heads.push_back(std::move(one));
        std::size_t settings = 0;
        for (const std::string& drafter : config_.drafters) {
            ReplayConfig replay = config_.replay;
            replay.drafter = drafter;
            replay.heads = drafter_traits(drafter).uses_head ? heads : std::vector<std::string>();
            if (!drafter_traits(drafter).uses_head) replay.artefacts.clear();
            DS_ASSIGN(auto runs, resolve_replayed_heads(replay, *recording_));
            settings += runs.size() * list_trees(config_.trees).size() * config_.batches.size();
            drafters_.push_back({drafter, std::move(runs)});
        }
        if (settings > max_sweep_settings)
            return bad_input(
                "sweep: {} settings, at most {}; drafters x heads x trees x batches bound it, so give fewer "
                "values of one of them",
                settings, max_sweep_settings);
        return {};
    }

    Status run_group(const DrafterPlan& plan, const DrafterGroup& group) {
        DS_ASSIGN(const DraftModels models, load_draft_models(group, plan.runs, models_, hooks_));
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

    /// Returns "eagle3 x microspec", or the drafter alone if it uses no head.
    static std::string pair_text(std::string_view drafter, const std::string& head) {
        return head.empty() ? std::string(drafter) : fmt::format("{} x {}", drafter, head);
    }
    static std::string method_text(std::string_view drafter, const std::string& head,
                                   const std::string& tree) {
        return fmt::format("{} @ {}", pair_text(drafter_id(drafter), head), tree);
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
        setting.shape = {tree.depth, tree.topk, tree.nodes};
        setting.exact = exact;
        setting.units.resize(report_.conversations);
        for (std::size_t p = 0; p < rounds.size(); ++p)
            for (const HeadRound& round : rounds[p]) {
                SweepUnit& unit = setting.units[conversations_[p]];
                unit.rounds += 1;
                unit.committed += round.committed;
            }
        add(std::move(setting));
    }

    /// Adds a setting once for each batch, with its predicted times.
    void add(SweepSetting setting) {
        const double tau = setting.total().tau().value_or(1);
        const std::string method = method_text(setting.drafter, setting.head, setting.tree);
        for (const int batch : config_.batches) {
            setting.batch = batch;
            const auto cost = predict_method(report_.profile, method, tau, context_, batch);
            const auto plain =
                predict_method(report_.profile, std::string(plain_drafter), 1, context_, batch);
            if (!cost.ok() || !plain.ok()) {
                skip(setting.drafter, setting.head, (cost.ok() ? plain : cost).error());
                continue;
            }
            setting.round_ms = cost->total_ms();
            setting.head_ms = cost->head_ms;
            setting.curves = cost->curves;
            setting.plain_ms = plain->total_ms();
            setting.extrapolated = cost->extrapolated || plain->extrapolated;
            setting.cost_error.reset();
            if (cost->error_ms && setting.round_ms > 0)
                setting.cost_error = *cost->error_ms / setting.round_ms;
            report_.settings.push_back(setting);
        }
    }

    /// Takes over the settings that are known.
    Status add_known() {
        const RecordingInfo& info = recording_->info();
        report_.source = fmt::format("{}, {} rows, {} prompts, {} tokens, T={:g}, {}", info.target.name,
                                     info.rows, info.prompts.size(), report_.max_new,
                                     info.sampling.temperature, kernels::to_text(models_.precision));
        std::vector<SweepSetting> known = config_.known;
        if (!config_.save.empty()) {
            DS_ASSIGN(known, load_sweep(config_.save, report_.source));
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

    void finish_rows() {
        link_full_heads();
        report_.rows = sweep_table(report_.settings);
    }

    /// Saves what is known so far, so that an interrupted sweep goes on from there.
    Status save() {
        if (config_.save.empty()) return {};
        finish_rows();
        return save_sweep(config_.save, report_, config_.replay.model, nullptr);
    }

    void link_full_heads() {
        std::map<std::string, std::size_t> full;
        const auto key = [](const SweepSetting& one) {
            return key_of(one.drafter, std::to_string(one.batch), one.tree);
        };
        for (std::size_t s = 0; s < report_.settings.size(); ++s)
            if (is_full_head(report_.settings[s].head)) full[key(report_.settings[s])] = s;
        for (SweepSetting& setting : report_.settings)
            if (const auto found = full.find(key(setting)); found != full.end()) setting.full = found->second;
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
    std::shared_ptr<const DecodeRecording> recording_;
    ReplayModels models_;
    std::vector<DrafterPlan> drafters_;
    std::set<std::string> known_;             ///< keys of the known settings
    std::vector<std::size_t> conversations_;  ///< by prompt
    double context_ = 0;                      ///< mean committed tokens before a round
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

Result<SweepReport> run_sweep(const SweepConfig& config, const JobHooks& hooks) {
    return Sweep(config, hooks).run();
}

}  // namespace draftscope
