#pragma once

#include <memory>
#include <string>
#include <vector>

#include "app/jobs/replay/replay_job.h"
#include "app/jobs/resolve/resolve.h"
#include "base/job_hooks.h"
#include "engine/heads/head.h"
#include "engine/recording/recording.h"
#include "engine/transformer/target.h"

/// Loads what replays and sweeps need. This is a recording with its target's LM head, and the drafters and
/// heads that draft along it.
namespace draftscope {

/// Data that stays loaded while heads are replayed.
struct ReplayModels {
    std::shared_ptr<const DecodeRecording> recording;
    std::unique_ptr<kernels::Backend> backend;
    std::unique_ptr<Target> target;
    kernels::Precision precision = kernels::Precision::bf16;
};
/// Opens the recording alone. `config.model` may not be given if the recording has its own weights.
Result<std::shared_ptr<const DecodeRecording>> open_recording(const ReplayConfig& config);
/// Loads the LM head and embedding of a recording's target. `first` is any of the resolved heads.
Result<ReplayModels> load_models(const ReplayConfig& config, const ResolvedRun& first,
                                 std::shared_ptr<const DecodeRecording> recording, const JobHooks& hooks);

/// Resolves the heads of `config`, or the full head. Two equal ones are bad_input.
Result<std::vector<ResolvedRun>> resolve_replayed_heads(const ReplayConfig& config,
                                                        const DecodeRecording& recording);

/// Heads that share a drafter, as places in the list of resolved heads. A jointly trained head uses its own
/// drafter.
struct DrafterGroup {
    std::string path;  ///< of the drafter
    std::vector<std::size_t> heads;
};
std::vector<DrafterGroup> group_by_drafter(const std::vector<ResolvedRun>& runs);

/// A loaded drafter with its heads; none if the drafter uses no head.
struct DraftModels {
    std::shared_ptr<Drafter> drafter;
    std::vector<std::unique_ptr<LmHead>> heads;
    std::vector<ReplayHead> replayed;  ///< of `heads`, in their order
};
/// Loads the group's drafter, unless `drafter` holds it already, and prepares its heads.
Result<DraftModels> load_draft_models(const DrafterGroup& group, const std::vector<ResolvedRun>& runs,
                                      const ReplayModels& models, const JobHooks& hooks,
                                      std::shared_ptr<Drafter> drafter = {});

/// Returns why figures of a replay are estimates; empty = they equal those of a live run. The reasons are
/// differences between this machine and the recording one, and `head` if it needs more than a recording has.
std::vector<std::string> estimate_reasons(const ReplayModels& models, const LmHead* head);

}  // namespace draftscope
