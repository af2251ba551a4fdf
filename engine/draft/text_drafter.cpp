#include "engine/draft/text_drafter.h"

namespace draftscope {

Status TextDrafter::begin(DraftContext& context, std::span<DraftJob> jobs) {
    for (const DraftJob& job : jobs)
        if (job.tokens.empty()) return failed("{}: a sequence without tokens has no root", name_);
    {
        PhaseScope scope(context.phases, Phase::backbone, 0, static_cast<int>(jobs.size()));
        for (DraftJob& job : jobs) read(job);
    }
    for (DraftJob& job : jobs) DS_TRY(draft(context.phases, job));
    if (context.observer == nullptr) return {};
    for (DraftJob& job : jobs) context.observer->level_done(job.sequence, 0, [&] { return job.out; });
    return {};
}

}  // namespace draftscope
