#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "app/jobs/resolve/resolve.h"
#include "app/jobs/run/conversation_feed.h"
#include "app/jobs/run/model_cache.h"
#include "app/jobs/run/prompt_file.h"
#include "app/jobs/run/run_job.h"
#include "base/result.h"
#include "engine/decode/session.h"
#include "profiler/cupti/tier.h"
#include "storage/run_records.h"

namespace draftscope {

/// What --resume takes over from an earlier run: its complete conversations.
struct KeptRun {
    std::vector<RunRecords> parts;
    std::vector<PromptReport> reports;  ///< of their prompts
    std::size_t conversations = 0;
    TimeNs duration = 0;      ///< of the parts
    std::string started_utc;  ///< of the first part
};

/// Steps from one with spans to the next, of tier-0 runs on a GPU. docs/design/gpu.md has the estimate.
inline constexpr int device_span_interval = 16;

/// What a request resolves to: the settings and conversations of one run of the capture.
struct RunPlan {
    ResolvedRun run;
    std::vector<Conversation> conversations;
    int total = 0;               ///< conversations of the run in all its shards
    std::string prompts_hash;    ///< PromptSet::hash
    Notes notes;                 ///< of the prompts and the chat template
    ChatTemplate chat;           ///< known when the target is loaded
    std::vector<int> skipped;    ///< Conversation::index of those that `conversations` lacks
    bool windowed = false;       ///< of a range of the conversations, which may be empty
    bool baseline = false;       ///< the autoregressive reference of a run
    bool only_if_short = false;  ///< a baseline that is left out if it takes seconds
    std::string bench;           ///< RunHooks::bench
    KeptRun kept;                ///< decoded already; `conversations` has the others

    std::size_t prompts() const;  ///< turns of all conversations
    /// Returns the plan that decodes the first conversations without a drafter; absent if none is wanted.
    std::optional<RunPlan> make_baseline() const;
    DecodeOptions decode_options(std::span<const ShadowHead> shadows) const;
    ConversationFeed::Settings feed_settings() const;
};

/// Resolves `config` and reads its prompts. `hooks` may select a range of the conversations.
Result<RunPlan> make_run_plan(const RunConfig& config, const RunHooks& hooks);

/// Warns if a head of the run was fitted on some of its prompts.
Status warn_of_overlap(const RunPlan& plan);

/// Returns the database row of a run that starts now, with the loaded models and settings.
RunRow describe_run(const RunPlan& plan, const ModelCache& models, const TierChoice& tier,
                    const std::string& frontend, RowId id);

}  // namespace draftscope
