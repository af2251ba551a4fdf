#include "app/jobs/replay/replay_models.h"

#include <algorithm>
#include <set>

#include "app/jobs/resolve/artefacts.h"
#include "app/jobs/resolve/run_weights.h"
#include "base/cpus.h"
#include "engine/draft/drafter.h"
#include "engine/heads/registry.h"
#include "engine/recording/recorded_target.h"

namespace draftscope {
namespace {

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

Result<std::unique_ptr<LmHead>> load_head(const ResolvedRun& run, const HeadWeights& weights,
                                          kernels::Backend& backend) {
    DS_ASSIGN(auto head, make_head(*run.head, run.artefacts));
    DS_TRY(head->prepare(backend, weights));
    if (const Status can = ReplayRunner::check(*head, recording_topk); !can.ok())
        return bad_input("--heads {}: cannot be replayed: {}", to_text(*run.head), can.error().message);
    return head;
}

}  // namespace

Result<std::shared_ptr<const DecodeRecording>> open_recording(const ReplayConfig& config) {
    const Shard& shard = config.shard;
    const auto keep_shard = [&](std::vector<RecordedPrompt>& prompts) {
        const std::vector<std::size_t> conversations = conversation_of_prompts(prompts);
        std::size_t prompt = 0;
        std::erase_if(prompts, [&](const RecordedPrompt&) { return !shard.has(conversations[prompt++]); });
    };
    DS_ASSIGN(auto recording, DecodeRecording::open(config.recording, keep_shard));
    if (recording->prompts().empty())
        return bad_input("--shard {}/{}: {} has too few conversations for so many shards", shard.index,
                         shard.count, config.recording);
    if (!config.model.empty() && !recording->weights_path().empty())
        return bad_input(
            "--model {}: the recording contains its target's LM head and embedding, {}; leave --model out",
            config.model, recording->weights_path());
    return recording;
}

Result<ReplayModels> load_models(const ReplayConfig& config, const ResolvedRun& first,
                                 std::shared_ptr<const DecodeRecording> recording, const JobHooks& hooks) {
    ReplayModels models;
    models.recording = std::move(recording);
    say_notes(thread_limit_notes(config.threads));
    models.backend = kernels::make_cpu_backend(threads_or_default(config.threads));
    models.precision = first.precision.value_or(
        kernels::precision_from(models.recording->info().precision).value_or(kernels::Precision::bf16));
    hooks.report(-1, "packing the LM head");
    const std::string model = models.recording->weights_path().empty() ? first.config.model : config.model;
    DS_ASSIGN(models.target,
              make_recorded_target(*models.recording, model, *models.backend, models.precision));
    return models;
}

Result<std::vector<ResolvedRun>> resolve_replayed_heads(const ReplayConfig& config,
                                                        const DecodeRecording& recording) {
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

Result<DraftModels> load_draft_models(const DrafterGroup& group, const std::vector<ResolvedRun>& runs,
                                      const ReplayModels& models, const JobHooks& hooks,
                                      std::shared_ptr<Drafter> drafter) {
    const ResolvedRun& first = runs[group.heads.front()];
    DraftModels out;
    out.drafter = std::move(drafter);
    if (!out.drafter) {
        hooks.report(-1, "loading drafter " + first.drafter_name());
        DS_ASSIGN(out.drafter, load_drafter(first, *models.target, *models.backend));
        say_notes(out.drafter->properties().notes);
    }
    DS_TRY(check_recording_features(*models.recording, *out.drafter, first.drafter_id));
    if (!out.drafter->uses_head()) return out;
    const HeadWeights weights =
        head_weights(first, *out.drafter, *models.target, models.recording->info().target);
    for (const std::size_t i : group.heads) {
        hooks.report(-1, "preparing head " + to_text(*runs[i].head));
        DS_ASSIGN(auto head, load_head(runs[i], weights, *models.backend));
        out.replayed.push_back({head.get(), find_head(runs[i].head->id)->replay_only});
        out.heads.push_back(std::move(head));
    }
    return out;
}

std::vector<std::string> estimate_reasons(const ReplayModels& models, const LmHead* head) {
    const RecordingInfo& info = models.recording->info();
    const std::string isa(kernels::to_text(models.backend->pool().isa()));
    const std::string precision(kernels::to_text(models.precision));
    std::vector<std::string> reasons;
    if (!info.isa.empty() && info.isa != isa)
        reasons.push_back(fmt::format("recorded on {}, replayed on {}", info.isa, isa));
    if (!info.precision.empty() && info.precision != precision)
        reasons.push_back(fmt::format("recorded at {}, replayed at {}", info.precision, precision));
    if (head != nullptr && head->target_tokens().need_live_rounds())
        reasons.emplace_back(replay_estimate_note);
    return reasons;
}

}  // namespace draftscope
