#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/model/target.h"
#include "engine/replay/trace_writer.h"
#include "engine/session/session.h"

namespace draftscope {

struct TraceRecordOptions {
    int batch = 8;  ///< prompts decoded side by side; the trace does not depend on it
    std::function<bool()> cancelled;
    /// prompt_hash() of the first turn of a prompt's conversation; empty = not known.
    std::function<std::string(const PromptInput& prompt)> hash;
};

/// Decodes plainly, with the writer's sampling and limits, and appends every turn as it ends. When cancelled,
/// turns that have begun their text are kept as far as they came, and info().complete is false.
Status record_trace(Target& target, kernels::Exec& exec, PromptFeed& feed, const TraceRecordOptions& options,
                    TraceWriter& writer);

/// What a trace of `target` says about it.
TraceTarget describe_target(const Target& target);

/// Time of a target forward over M rows behind `prefix` tokens, in a chain: median of five, for M of 1 to 64
/// as far as about two seconds allow.
Result<std::map<int, TimeNs>> measure_verify(Target& target, kernels::Exec& exec, int prefix);

}  // namespace draftscope
