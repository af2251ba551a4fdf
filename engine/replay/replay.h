#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/replay/trace.h"
#include "engine/session/follow.h"

namespace draftscope {

struct ReplayOptions {
    TreeSpec tree;
    int batch = 16;    ///< prompts in lockstep; no result depends on it
    int max_new = 0;   ///< texts are cut to this many tokens; 0 = as recorded
    bool mass = true;  ///< also the probability mass on the active sets: one LM head call per token
    std::function<bool()> cancelled;
    std::function<void(double fraction)> on_progress;
};

/// Rounds of each head along each prompt: rounds[head][prompt]. A drafter without a head has one row.
struct ReplayResult {
    std::vector<std::vector<std::vector<HeadRound>>> rounds;
    /// Share of generated positions where the LM head's best token is the recorded one; about 1 when the LM
    /// head is the trace's own. Absent without `mass`.
    std::optional<double> agreement;
};

/// Drafts along the trace with every head: what a live run under exact-match verification would have done,
/// round by round (docs/FORMATS.md, Traces: conditions of exactness). `ends` is the trace's target; `heads`
/// are prepared, empty for a drafter without a head.
Result<ReplayResult> replay(const Trace& trace, const Target& ends, Drafter& drafter,
                            std::span<const FollowedHead> heads, kernels::Exec& exec,
                            const ReplayOptions& options);

/// Can this trace feed this drafter? bad_input names what it lacks.
Status check_trace_feeds(const Trace& trace, const Drafter& drafter, std::string_view name);

}  // namespace draftscope
