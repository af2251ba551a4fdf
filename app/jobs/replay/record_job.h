#pragma once

#include <optional>
#include <string>

#include "app/jobs/commands/run_config.h"
#include "app/jobs/replay/given_texts.h"
#include "base/job_hooks.h"
#include "base/notes.h"
#include "base/result.h"
#include "engine/recording/recording_info.h"

namespace draftscope {

/// Options of `draftscope record`.
struct RecordConfig {
    RunConfig run;    ///< target, prompts and sampling; drafter, head and tree are not used
    std::string ids;  ///< file whose texts are followed, see read_given_texts(); "" = the target chooses
    std::optional<GivenPart> part = {};  ///< of `ids`; absent = all texts
    std::string out;                     ///< folder
    std::string source;                  ///< program and version, for trace.json
    std::string aux;                     ///< "2,15,27"; "" = EAGLE-3's default layers (2, L/2, L-3); "none"
    int batch = 8;                       ///< prompts decoded in lockstep
    bool times = true;                   ///< also measure the time of a verification of M rows
    bool overwrite = false;
};
/// Result of a recording.
struct RecordReport {
    RecordingInfo info;
    std::int64_t generated = 0;
    Notes notes;  ///< of the model and the prompts
    double seconds = 0;
};
/// Decodes the prompts, or follows given texts, and writes the recording. Blocks. If cancelled, the recording
/// contains the decoded part and report.info.complete is false; if cancelled before the first token, returns
/// an error and writes nothing.
Result<RecordReport> run_record(const RecordConfig& config, const JobHooks& hooks);

}  // namespace draftscope
