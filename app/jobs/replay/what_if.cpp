#include "app/jobs/replay/what_if.h"

#include "app/jobs/replay/record_job.h"
#include "app/jobs/replay/replay_job.h"
#include "base/temporary_folder.h"

namespace draftscope {
namespace {

constexpr int followed_tokens = 40;  // deeper than any tree

}  // namespace

Status what_if(const WhatIf& wanted, const std::string& capture, RowIds& ids, RecordSink& sink,
               const JobHooks& hooks) {
    TemporaryFolder folder;
    DS_TRY(folder.make("what-if"));
    RecordConfig record;
    record.run.model = wanted.setting.model;
    record.run.threads = wanted.setting.threads;
    if (!wanted.precision.empty()) record.run.precision = wanted.precision;
    record.ids = capture;
    // The round's root is the first token of the part.
    record.part = GivenPart{wanted.run_id, wanted.prompt_id, wanted.context_length - 1, followed_tokens};
    record.out = folder.file("recording");
    record.times = false;
    DS_TRY(run_record(record, hooks));
    SettingReplay setting = wanted.setting;
    setting.recording = record.out;
    setting.conversation = 0;
    setting.conversations = 1;
    setting.first_round = true;
    return replay_setting(setting, ids, sink, hooks);
}

}  // namespace draftscope
