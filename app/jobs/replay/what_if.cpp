#include "app/jobs/replay/what_if.h"

#include "app/jobs/replay/record_job.h"
#include "app/jobs/replay/replay_job.h"
#include "app/jobs/run/recorder.h"
#include "base/temporary_folder.h"
#include "capture/collected_capture.h"

namespace draftscope {
namespace {

constexpr int followed_tokens = 40;  // deeper than any tree

}  // namespace

Status what_if(const WhatIf& wanted, const Snapshot& shown,
               FunctionRef<void(const WhatIf&, std::shared_ptr<const Snapshot>)> on_drafted,
               const JobHooks& hooks) {
    TemporaryFolder folder;
    DS_TRY(folder.make("what-if"));
    RecordConfig record;
    record.run.model = wanted.setting.model;
    record.run.threads = wanted.setting.threads;
    if (!wanted.precision.empty()) record.run.precision = wanted.precision;
    record.ids = shown.source.empty() ? folder.file("shown.dscope") : shown.source;
    if (shown.source.empty()) DS_TRY(save_snapshot(shown, record.ids));
    // The round's root is the first token of the part.
    record.part = GivenPart{wanted.run_id, wanted.prompt_id, wanted.context_length - 1, followed_tokens};
    record.out = folder.file("recording");
    record.times = false;
    DS_TRY(run_record(record, hooks));
    std::vector<std::string> heads = wanted.heads;
    if (heads.empty()) heads = {wanted.setting.head};
    Status problem;  // a head that cannot draft does not stop the others
    for (const std::string& head : heads) {
        WhatIf one = wanted;
        one.heads.clear();
        one.setting.head = head;
        SettingReplay setting = one.setting;
        setting.recording = record.out;
        setting.conversation = 0;
        setting.conversations = 1;
        setting.first_round = true;
        CollectedCapture made;
        RowIds ids;
        const Status drafted = replay_setting(setting, ids, made, hooks);
        if (drafted.ok())
            on_drafted(one, made.snapshot());
        else if (drafted.error().kind == ErrorKind::cancelled)
            return drafted;
        else
            problem = drafted;
    }
    return problem;
}

}  // namespace draftscope
