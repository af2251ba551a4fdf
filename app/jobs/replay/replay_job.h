#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/jobs/commands/sweep_report.h"
#include "app/jobs/resolve/artefacts.h"
#include "base/job_hooks.h"
#include "base/notes.h"
#include "base/result.h"
#include "capture/record.h"
#include "engine/recording/recording.h"
#include "engine/replay/replay.h"

namespace draftscope {

/// Options of `draftscope replay`.
struct ReplayConfig {
    std::string recording;  ///< folder
    std::string model;      ///< target's files, for its LM head and embedding; "" = recording or demo model
    std::string drafter = "eagle3";      ///< NAME[:PATH]
    std::vector<std::string> heads;      ///< specs
    std::vector<std::string> artefacts;  ///< HEAD=PATH
    std::string tree;                    ///< "" = the backend's default
    std::string precision = "auto";      ///< auto = as recorded, else bf16
    int threads = 0;                     ///< 0 = all cores
    int batch = 16;                      ///< prompts in lockstep
    int max_new = 0;                     ///< 0 = as recorded
    bool mass = true;
    Shard shard;                ///< of the recording's conversations
    bool overlap = false;       ///< alpha by level; requires `mass`
    std::vector<double> costs;  ///< of a draft and of a verification, in target passes; empty = unknown
};

struct ReplayedHead {
    std::string spec;                    ///< canonical; "" = the drafter has no head
    std::vector<std::string> estimates;  ///< why the result is an estimate; empty = exact
    std::optional<HeadFileReport> file;  ///< absent = the head has no file
};
/// Result of a replay.
struct ReplayReport {
    std::shared_ptr<const DecodeRecording> recording;
    std::string drafter, tree, precision, isa;
    int threads = 0;
    std::vector<ReplayedHead> heads;
    ReplayResult result;
    std::vector<double> costs;  ///< ReplayConfig::costs
    int levels = 0;             ///< draft levels of the tree
    std::vector<std::string> warnings;
    Notes notes;         ///< of the target's and the drafters' files
    double seconds = 0;  ///< of the replay, without loading
    std::int64_t rounds() const;
};

/// Joins recordings, the shards of one command, to the recording of the whole in the new folder `out`. Its
/// turns are in the order of the prompt file. bad_input names what differs between two recordings, and a
/// shard that is missing, doubled or incomplete. Returns the number of conversations.
Result<std::size_t> pool_recordings(const std::string& out, const std::vector<std::string>& folders);

/// Loads the recording, drafter and heads, and replays. Blocks.
Result<ReplayReport> run_replay(const ReplayConfig& config, const JobHooks& hooks);

/// Replays a setting along one conversation and sends it to `sink` as a run: texts, rounds and trees. The run
/// has acceptance `replayed` and no times. Blocks.
Status replay_setting(const SettingReplay& wanted, RowIds& ids, RecordSink& sink, const JobHooks& hooks);

}  // namespace draftscope
