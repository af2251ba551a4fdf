#include <algorithm>
#include <functional>
#include <map>

#include "app/jobs/profile/profile_job.h"
#include "app/jobs/replay/replay_models.h"
#include "app/jobs/resolve/artefacts.h"
#include "app/jobs/resolve/resolve.h"
#include "app/jobs/run/run_job.h"
#include "app/jobs/sweep/saved_sweep.h"
#include "app/jobs/sweep/sweep_job.h"
#include "base/clock.h"
#include "capture/head_traits.h"
#include "engine/draft/registry.h"
#include "engine/heads/registry.h"

namespace draftscope {
namespace {

// Our defaults.
constexpr int coarse_chain = 6;
constexpr int deepest_chain = 12;
constexpr std::size_t replays_per_step = 4;

std::vector<int> numbers(int first, int last, int step) {
    std::vector<int> out;
    for (int one = first; one <= last; one += step) out.push_back(one);
    return out;
}

/// Returns every policy of adaptive length, with drafts of at most `longest` tokens.
std::vector<std::string> adaptive_chains(int longest) {
    std::vector<std::string> out;
    for (const LengthPolicyInfo& policy : length_policies())
        out.push_back(fmt::format("adaptive:{},max={}", policy.id, longest));
    return out;
}

/// A drafter and a head spec.
struct Pair {
    std::string drafter, head;
    double speed = 0;  ///< of its fastest setting
    TreeShape shape;   ///< of that setting
};

class Search {
  public:
    Search(const SweepConfig& config, const JobHooks& hooks,
           const std::function<void(const SweepReport&)>& on_settings)
        : config_(config), hooks_(hooks), on_settings_(on_settings) {
        config_.max_replays = replays_per_step;
        config_.save.clear();  // one file, written at the end
        inner_.cancelled = hooks.cancelled;
        inner_.on_progress = [this](double fraction, const std::string& what) {
            hooks_.report((step_ + std::max(fraction, 0.0)) / steps, what);
        };
    }

    Result<SweepReport> run() {
        const TimeNs start = monotonic_ns();
        DS_ASSIGN(loaded_.recording, open_recording(config_.replay));
        const TreeGrid chains{coarse_chain, {}, 0, {}};
        for (const std::string& drafter : config_.drafters) DS_TRY(sweep_first(drafter, chains));
        ++step_;
        for (const Pair& pair : near(0.1, 3)) DS_TRY(sweep(pair.drafter, sizes(pair), chains));
        ++step_;
        for (const auto& [drafter, heads] : by_drafter(near(0.05, 3)))
            DS_TRY(sweep(drafter, heads,
                         {coarse_chain, {2, 4}, 3, numbers(3, 24, 1), adaptive_chains(coarse_chain)}));
        ++step_;
        for (const Pair& pair : near(0.02, 2)) DS_TRY(sweep(pair.drafter, {pair.head}, finer(pair.shape)));
        report_.seconds = seconds(monotonic_ns() - start);
        report_.run.artefacts = config_.replay.artefacts;
        return std::move(report_);
    }

  private:
    static constexpr double steps = 4;

    /// Sweeps the first heads, one by one if those that cannot be used are left out.
    Status sweep_first(const std::string& drafter, const TreeGrid& chains) {
        const std::vector<std::string> heads = first_heads(drafter);
        if (!config_.only_usable) return sweep(drafter, heads, chains);
        for (const std::string& head : heads) {
            const Status swept = sweep(drafter, {head}, chains);
            if (!swept.ok() && (swept.error().kind != ErrorKind::bad_input || is_full_head(head)))
                return swept;
            if (!swept.ok())
                note_once(report_.skipped, fmt::format("{} x {}: {}", drafter, head, swept.error().message));
        }
        return {};
    }

    /// Sweeps further settings and keeps the earlier ones, also if it fails.
    Status sweep(const std::string& drafter, const std::vector<std::string>& heads, const TreeGrid& trees) {
        if (heads.empty()) return {};
        SweepConfig config = config_;
        config.drafters = {drafter};
        config.heads = heads == std::vector<std::string>{""} ? std::vector<std::string>() : heads;
        // Heads that replay few trees choose them by the full head's acceptance.
        std::ranges::stable_partition(config.heads, [](const auto& head) { return is_full_head(head); });
        if (step_ > 0 || config_.only_usable) {
            std::vector<HeadSpec> specs;
            for (const std::string& head : config.heads)
                if (auto spec = parse_head_spec(head); spec.ok()) specs.push_back(std::move(*spec));
            keep_used(config.replay.artefacts, specs);
        }
        config.trees = trees;
        config.known = std::move(report_.settings);
        const std::size_t passes = report_.passes;
        std::vector<std::string> estimates = std::move(report_.estimates),
                                 skipped = std::move(report_.skipped);
        auto swept = sweep_settings(config, inner_, loaded_);
        if (swept.ok())
            report_ = std::move(*swept);
        else
            report_.settings = std::move(config.known);
        if (swept.ok()) report_.passes += passes;
        for (const std::string& one : estimates) note_once(report_.estimates, one);
        for (const std::string& one : skipped) note_once(report_.skipped, one);
        if (!swept.ok()) return swept.error();
        if (on_settings_) on_settings_(report_);
        return {};
    }

    /// Returns the given heads, or all that are usable with the drafter; one "" for a drafter without heads.
    std::vector<std::string> first_heads(const std::string& drafter) {
        if (!drafter_traits(drafter).uses_head) return {""};
        std::vector<std::string> heads;
        for (const std::string& text : config_.heads) {
            const auto spec = parse_head_spec(text);
            const HeadInfo* info = spec.ok() ? find_head(spec->id) : nullptr;
            const std::string first =
                info != nullptr && spec->params.empty() ? first_spec(drafter, *info) : text;
            const auto usable = [&] {
                const auto parsed = parse_head_spec(first);
                return parsed.ok() && is_usable(drafter, *parsed);
            };
            if (!config_.only_usable || usable()) heads.push_back(first);
        }
        if (heads.empty() && config_.only_usable) heads.emplace_back(full_head_id);
        if (!heads.empty()) return heads;
        for (const HeadInfo& info : head_registry())
            if (!info.replay_only && is_usable(drafter, {std::string(info.id), {}}))
                heads.push_back(first_spec(drafter, info));
        return heads;
    }

    /// Returns the head at a middle size if its cost depends on a size that has neither a default nor a file
    /// that fixes it.
    std::string first_spec(const std::string& drafter, const HeadInfo& info) {
        std::string id(info.id);
        if (default_size(info) > 0) return id;
        const std::vector<std::string> all = sizes({drafter, id, 0, {}});
        return all.empty() ? id : all[all.size() / 2];
    }

    /// Drops weights files of heads that are not swept.
    static void keep_used(std::vector<std::string>& artefacts, const std::vector<HeadSpec>& heads) {
        std::erase_if(artefacts, [&](const std::string& file) {
            return std::ranges::none_of(heads,
                                        [&](const HeadSpec& head) { return uses_artefact(head, file); });
        });
    }

    bool is_usable(const std::string& drafter, const HeadSpec& head) {
        ReplayConfig replay = config_.replay;
        replay.drafter = drafter;
        replay.heads = {to_text(head)};
        keep_used(replay.artefacts, {head});
        const auto runs = resolve_replayed_heads(replay, *loaded_.recording);
        return runs.ok() && make_head(*runs->front().head, runs->front().artefacts).ok();
    }

    /// Returns the pairs within a share of the fastest one, fastest first, and the full head with the first
    /// one's drafter.
    std::vector<Pair> near(double share, std::size_t max_pairs) const {
        std::map<std::pair<std::string, std::string>, Pair> pairs;
        for (const SweepSetting& one : report_.settings) {
            if (one.batch != config_.batches.front()) continue;
            Pair& pair = pairs[{one.drafter, one.head}];
            if (one.speed() > pair.speed) pair = {one.drafter, one.head, one.speed(), one.shape};
        }
        std::vector<Pair> order;
        for (auto& [key, pair] : pairs) order.push_back(std::move(pair));
        std::ranges::stable_sort(order, std::greater(), &Pair::speed);
        std::vector<Pair> out;
        for (const Pair& pair : order) {
            const bool full = is_full_head(pair.head) && pair.drafter == order.front().drafter;
            if ((out.size() < max_pairs && pair.speed >= (1 - share) * order.front().speed) || full)
                out.push_back(pair);
        }
        return out;
    }
    static std::map<std::string, std::vector<std::string>> by_drafter(const std::vector<Pair>& pairs) {
        std::map<std::string, std::vector<std::string>> out;
        for (const Pair& pair : pairs) out[pair.drafter].push_back(pair.head);
        return out;
    }

    /// Returns the head at the sizes that profiles measure, as far as its files allow them.
    std::vector<std::string> sizes(const Pair& pair) {
        std::vector<std::string> out;
        const auto spec = parse_head_spec(pair.head);
        const HeadInfo* info = spec.ok() ? find_head(spec->id) : nullptr;
        if (info == nullptr || info->size.name.empty()) return out;
        // A size that the caller named stays.
        if (!config_.heads.empty() && spec->params.contains(info->size.name)) return out;
        const RecordedTarget& target = loaded_.recording->info().target;
        for (const SizedHead& sized : sized_heads(*info, target.vocab, target.hidden)) {
            HeadSpec head = *spec;
            for (const auto& [name, value] : sized.spec.params) head.params.insert_or_assign(name, value);
            if (is_usable(pair.drafter, head)) out.push_back(to_text(head));
        }
        return out;
    }

    /// Returns the trees that step 3 lacks, deeper ones if the best one is among the deepest.
    static TreeGrid finer(const TreeShape& best) {
        const bool deep = best.depth >= (best.topk > 1 ? 3 : coarse_chain - 1);
        const int chain = deep ? deepest_chain : coarse_chain;
        return {chain, {2, 3, 4, 6, 8}, deep ? 5 : 3, numbers(3, 32, 1), adaptive_chains(chain)};
    }

    SweepConfig config_;
    const JobHooks& hooks_;
    const std::function<void(const SweepReport&)>& on_settings_;
    JobHooks inner_;
    SweepModels loaded_;
    int step_ = 0;
    SweepReport report_;
};

}  // namespace

Result<SweepReport> run_search(const SweepConfig& config, const JobHooks& hooks,
                               const std::function<void(const SweepReport&)>& on_settings) {
    DS_ASSIGN(SweepReport report, Search(config, hooks, on_settings).run());
    DS_TRY(finish_sweep(config, report));
    return report;
}

Result<std::shared_ptr<const SweepReport>> run_window_sweep(const SweepRequest& request,
                                                            const JobHooks& hooks) {
    if (request.recording.empty())
        return bad_input("sweep: names no recording; make one with draftscope record --out FOLDER");
    SweepConfig config;
    config.replay.recording = request.recording;
    config.replay.model = request.model;
    config.replay.threads = request.threads;
    config.drafters = split_drafters(request.drafters);
    if (!request.heads.empty()) config.heads = split_specs(request.heads);
    config.batches = {request.batch};
    if (request.search) config.batches = {request.batch, 4 * request.batch, 16 * request.batch};
    config.profile = request.profile;
    config.save = request.save;
    if (!request.search && config.heads.empty()) config.heads = {RunConfig().head};
    DS_ASSIGN(SweepReport report, request.search ? run_search(config, hooks) : run_sweep(config, hooks));
    prepare_for_window(report);
    return std::make_shared<const SweepReport>(std::move(report));
}

}  // namespace draftscope
