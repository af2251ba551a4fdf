#include "app/jobs/replay/replay_job.h"

#include <algorithm>

#include "app/jobs/replay/replay_models.h"
#include "base/clock.h"
#include "engine/draft/drafter.h"
#include "engine/heads/registry.h"

namespace draftscope {

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
    if (config.overlap && !config.mass)
        return bad_input("--overlap: needs the target's probabilities; leave out --no-mass");
    const bool two = config.costs.size() == 2 && config.costs[0] >= 0 && config.costs[1] > 0;
    if (!config.costs.empty() && !(two && config.overlap))
        return bad_input(
            "--costs {}: expected DRAFT,VERIFY in target passes, at least 0 and above 0, with --overlap",
            fmt::join(config.costs, ","));
    if (config.max_new < 0) return bad_input("--max-new {}: must not be negative", config.max_new);
    return {};
}

/// Replays the heads of one drafter and stores their rounds in the report.
Status replay_group(const DrafterGroup& group, const std::vector<ResolvedRun>& runs,
                    const ReplayModels& models, const ReplayOptions& options, const JobHooks& hooks,
                    ReplayReport& report) {
    DS_ASSIGN(const DraftModels drafting, load_draft_models(group, runs, models, hooks));
    append_notes(report.notes, drafting.drafter->properties().notes);
    const int trained = drafting.drafter->properties().trained_positions;
    const auto beyond =
        std::ranges::count_if(models.recording->info().prompts,
                              [&](const RecordedPrompt& one) { return trained > 0 && one.rows() > trained; });
    if (beyond > 0)
        add_note(report.notes, "{} prompts reach beyond the context of {} positions that the drafter names",
                 beyond, trained);
    DS_TRY(check_tree(*drafting.drafter, options.tree));
    std::vector<std::size_t> places = group.heads;
    if (drafting.heads.empty()) {
        places = {0};
        report.heads = {{"", {}, {}}};
        report.result.rounds.resize(1);
        report.result.overlaps.resize(1);
    }
    for (std::size_t i = 0; i < places.size(); ++i) {
        auto& estimates = report.heads[places[i]].estimates;
        const std::vector<std::string> reasons =
            estimate_reasons(models, drafting.heads.empty() ? nullptr : drafting.heads[i].get());
        estimates.insert(estimates.end(), reasons.begin(), reasons.end());
    }
    const TimeNs start = monotonic_ns();
    DS_ASSIGN(ReplayResult result, replay(*models.recording, *models.target, *drafting.drafter,
                                          drafting.replayed, *models.backend, options));
    report.seconds += seconds(monotonic_ns() - start);
    for (std::size_t i = 0; i < places.size(); ++i) {
        report.result.rounds[places[i]] = std::move(result.rounds[i]);
        report.result.overlaps[places[i]] = std::move(result.overlaps[i]);
    }
    if (result.agreement) report.result.agreement = result.agreement;
    return {};
}

}  // namespace

Result<ReplayReport> run_replay(const ReplayConfig& config, const JobHooks& hooks) {
    DS_TRY(check(config));
    hooks.report(-1, "opening the recording");
    DS_ASSIGN(auto recording, open_recording(config));
    DS_ASSIGN(const std::vector<ResolvedRun> runs, resolve_replayed_heads(config, *recording));
    const ResolvedRun& first = runs.front();
    DS_ASSIGN(const ReplayModels models, load_models(config, first, std::move(recording), hooks));
    const RecordingInfo& info = models.recording->info();

    ReplayReport report;
    report.recording = models.recording;
    report.drafter = first.drafter_name();
    report.notes = first.notes;
    say_notes(report.notes);
    report.tree = to_text(first.tree);
    report.costs = config.costs;
    report.levels = first.tree.levels();
    report.precision = std::string(kernels::to_text(models.precision));
    report.isa = std::string(kernels::to_text(models.backend->pool().isa()));
    report.threads = models.backend->pool().threads();
    std::vector<std::string> hashes;
    for (const RecordedPrompt& prompt : info.prompts) hashes.push_back(prompt.hash);
    for (const ResolvedRun& run : runs) {
        report.heads.push_back({to_text(*run.head), {}, head_file_report(*run.head, run.artefacts)});
        if (find_head(run.head->id)->replay_only)
            report.heads.back().estimates.push_back("hypothetical: this head knows the recorded text");
        if (const std::string warning = overlap_warning(*run.head, run.artefacts, hashes, "the recording");
            !warning.empty())
            report.warnings.push_back(warning);
    }
    if (!info.complete) report.warnings.push_back("the recording was cancelled before its last prompt");
    report.result.rounds.resize(runs.size());
    report.result.overlaps.resize(runs.size());
    ReplayOptions options;
    options.tree = first.tree;
    options.batch = config.batch;
    options.max_new = config.max_new;
    options.covered_prob = config.mass;
    options.overlap = config.overlap;
    options.cancelled = hooks.cancelled;
    options.on_progress = [&](double fraction) { hooks.report(fraction, "replaying"); };
    for (const DrafterGroup& group : group_by_drafter(runs))
        DS_TRY(replay_group(group, runs, models, options, hooks, report));
    return report;
}

}  // namespace draftscope
