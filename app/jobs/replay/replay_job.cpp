#include "app/jobs/replay/replay_job.h"

#include <algorithm>
#include <set>

#include "app/jobs/resolve/artefacts.h"
#include "app/jobs/resolve/resolve.h"
#include "app/jobs/resolve/run_drafter.h"
#include "base/clock.h"
#include "base/cpus.h"
#include "engine/draft/drafter.h"
#include "engine/heads/registry.h"
#include "engine/recording/recorded_target.h"

namespace draftscope {
namespace {

/// Data that stays loaded while heads are replayed.
struct ReplayData {
    std::shared_ptr<const DecodeRecording> recording;
    std::unique_ptr<kernels::Exec> exec;
    std::unique_ptr<Target> target;
};
/// A drafter with its heads. A jointly trained head uses its own drafter.
struct DrafterGroup {
    std::string path;  ///< of the drafter
    std::vector<std::size_t> heads;
};

/// Returns the equivalent run config: defaults, files and checks are those of a run.
RunConfig make_run_config(const ReplayConfig& config, const DecodeRecording& recording,
                          const std::string& head) {
    RunConfig run;
    run.model = config.model;
    // A recording with its target's weights needs no model; any existing path passes the check.
    if (run.model.empty() && !recording.weights_path().empty()) run.model = recording.folder();
    run.drafter = config.drafter;
    run.head = head;
    run.artefacts = config.artefacts;
    run.tree = config.tree;
    run.precision = config.precision;
    run.threads = config.threads;
    run.prompt = "replay";
    return run;
}

Result<kernels::Precision> choose_precision(const ResolvedRun& run, const RecordingInfo& info) {
    if (run.precision) return *run.precision;
    return kernels::precision_from(info.precision).value_or(kernels::Precision::bf16);
}

Result<std::unique_ptr<LmHead>> load_head(const ResolvedRun& run, const HeadWeights& weights,
                                          kernels::Exec& exec) {
    DS_ASSIGN(auto head, make_head(*run.head, run.artefacts));
    DS_TRY(head->prepare(exec, weights));
    if (const Status can = ReplayRunner::check(*head, recording_topk); !can.ok())
        return bad_input("--heads {}: cannot be replayed: {}", to_text(*run.head), can.error().message);
    return head;
}

/// Returns differences between this machine and the recording one that could have changed the drafts of a
/// live run.
std::vector<std::string> machine_estimates(const RecordingInfo& info, const std::string& precision,
                                           const std::string& isa) {
    std::vector<std::string> reasons;
    if (!info.isa.empty() && info.isa != isa)
        reasons.push_back(fmt::format("recorded on {}, replayed on {}", info.isa, isa));
    if (!info.precision.empty() && info.precision != precision)
        reasons.push_back(fmt::format("recorded at {}, replayed at {}", info.precision, precision));
    return reasons;
}

}  // namespace

std::int64_t ReplayReport::rounds() const {
    std::int64_t sum = 0;
    for (const auto& head : result.rounds)
        for (const auto& prompt : head) sum += static_cast<std::int64_t>(prompt.size());
    return sum;
}

namespace {

Status check(const ReplayConfig& config) {
    if (config.batch < 1 || config.batch > 4096)
        return bad_input("--batch {}: must be 1 to 4096", config.batch);
    if (config.max_new < 0) return bad_input("--max-new {}: must not be negative", config.max_new);
    return {};
}

Result<std::vector<ResolvedRun>> resolve_heads(const ReplayConfig& config, const DecodeRecording& recording) {
    const std::vector<std::string> specs =
        config.heads.empty() ? std::vector{std::string(full_head_id)} : config.heads;
    std::vector<ResolvedRun> runs;
    std::vector<HeadSpec> heads;
    std::set<std::string> seen;
    for (const std::string& spec : specs) {
        DS_ASSIGN(ResolvedRun run, resolve_run(make_run_config(config, recording, spec), true));
        if (!seen.insert(to_text(*run.head)).second)
            return bad_input("--heads: {} is named twice", to_text(*run.head));
        heads.push_back(*run.head);
        runs.push_back(std::move(run));
    }
    DS_TRY(check_artefacts_used(config.artefacts, heads));
    return runs;
}

std::vector<DrafterGroup> group_by_drafter(const std::vector<ResolvedRun>& runs) {
    std::vector<DrafterGroup> groups;
    for (std::size_t i = 0; i < runs.size(); ++i) {
        const auto found = std::find_if(groups.begin(), groups.end(), [&](const DrafterGroup& group) {
            return group.path == runs[i].drafter_path;
        });
        if (found != groups.end())
            found->heads.push_back(i);
        else
            groups.push_back({runs[i].drafter_path, {i}});
    }
    return groups;
}

/// Replays the heads of one drafter and stores their rounds in the report.
Status replay_group(const DrafterGroup& group, const std::vector<ResolvedRun>& runs,
                    const ReplayData& replay_data, const ReplayOptions& options, const JobHooks& hooks,
                    ReplayReport& report) {
    const ResolvedRun& first = runs[group.heads.front()];
    hooks.report(-1, "loading drafter " + first.drafter_id);
    DS_ASSIGN(const auto drafter, load_drafter(first, *replay_data.target, *replay_data.exec));
    DS_TRY(check_tree(*drafter, first.tree));
    DS_TRY(check_recording_features(*replay_data.recording, *drafter, first.drafter_id));
    std::vector<std::unique_ptr<LmHead>> heads;
    std::vector<ReplayHead> replay_heads;
    std::vector<std::size_t> places = group.heads;
    if (drafter->uses_head()) {
        const HeadWeights weights =
            head_weights(first, *drafter, *replay_data.target, replay_data.recording->info().target);
        for (const std::size_t i : group.heads) {
            hooks.report(-1, "preparing head " + to_text(*runs[i].head));
            DS_ASSIGN(auto head, load_head(runs[i], weights, *replay_data.exec));
            replay_heads.push_back({head.get(), find_head(runs[i].head->id)->replay_only});
            heads.push_back(std::move(head));
        }
    } else {
        places = {0};
        report.heads = {{"", report.heads.front().estimates}};
        report.result.rounds.resize(1);
    }
    const TimeNs start = monotonic_ns();
    DS_ASSIGN(ReplayResult result, replay(*replay_data.recording, *replay_data.target, *drafter, replay_heads,
                                          *replay_data.exec, options));
    report.seconds += seconds(monotonic_ns() - start);
    for (std::size_t i = 0; i < places.size(); ++i)
        report.result.rounds[places[i]] = std::move(result.rounds[i]);
    if (result.agreement) report.result.agreement = result.agreement;
    return {};
}

}  // namespace

Result<ReplayReport> run_replay(const ReplayConfig& config, const JobHooks& hooks) {
    DS_TRY(check(config));
    hooks.report(-1, "opening the recording");
    ReplayData replay_data;
    DS_ASSIGN(replay_data.recording, DecodeRecording::open(config.recording));
    const RecordingInfo& info = replay_data.recording->info();
    if (!config.model.empty() && !replay_data.recording->weights_path().empty())
        return bad_input(
            "--model {}: the recording contains its target's LM head and embedding, {}; leave --model out",
            config.model, replay_data.recording->weights_path());
    DS_ASSIGN(const std::vector<ResolvedRun> runs, resolve_heads(config, *replay_data.recording));
    const ResolvedRun& first = runs.front();
    const int cores = usable_cores();
    replay_data.exec = kernels::make_cpu_exec(config.threads > 0 ? config.threads : cores);
    DS_ASSIGN(const kernels::Precision precision, choose_precision(first, info));
    hooks.report(-1, "packing the LM head");
    const std::string model =
        replay_data.recording->weights_path().empty() ? first.config.model : config.model;
    DS_ASSIGN(replay_data.target,
              make_recorded_target(*replay_data.recording, model, *replay_data.exec, precision));

    ReplayReport report;
    report.recording = replay_data.recording;
    report.drafter = first.drafter_id;
    report.tree = to_text(first.tree);
    report.precision = std::string(kernels::to_text(precision));
    report.isa = std::string(kernels::to_text(replay_data.exec->isa()));
    report.threads = replay_data.exec->threads();
    std::vector<std::string> hashes;
    for (const RecordedPrompt& prompt : info.prompts) hashes.push_back(prompt.hash);
    for (const ResolvedRun& run : runs) {
        report.heads.push_back({to_text(*run.head), machine_estimates(info, report.precision, report.isa)});
        if (find_head(run.head->id)->replay_only)
            report.heads.back().estimates.push_back("hypothetical: this head knows the recorded text");
        if (const std::string warning = overlap_warning(*run.head, run.artefacts, hashes, "the recording");
            !warning.empty())
            report.warnings.push_back(warning);
    }
    if (!info.complete) report.warnings.push_back("the recording was cancelled before its last prompt");
    report.result.rounds.resize(runs.size());
    ReplayOptions options;
    options.tree = first.tree;
    options.batch = config.batch;
    options.max_new = config.max_new;
    options.covered_prob = config.mass;
    options.cancelled = hooks.cancelled;
    options.on_progress = [&](double fraction) { hooks.report(fraction, "replaying"); };
    for (const DrafterGroup& group : group_by_drafter(runs))
        DS_TRY(replay_group(group, runs, replay_data, options, hooks, report));
    return report;
}

}  // namespace draftscope
