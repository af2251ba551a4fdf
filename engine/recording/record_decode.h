#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/recording/recording_writer.h"
#include "engine/sequence/prompt.h"
#include "engine/transformer/target.h"

namespace draftscope {

/// A text to record as if the target had chosen it.
struct GivenText {
    std::vector<TokenId> tokens;     ///< at least one
    Finish finish = Finish::length;  ///< never none
};

struct RecordOptions {
    int batch = 8;  ///< prompts decoded together; the recording does not depend on it
    std::function<bool()> cancelled;
    /// Returns prompt_hash() of the first turn of a prompt's conversation; empty = unknown.
    std::function<std::string(const PromptInput& prompt)> hash;
    /// Returns the text that follows a prompt instead of the target's choices; it must outlive the recording.
    /// Empty = the target chooses. The writer's info().given then counts where the target agrees.
    std::function<const GivenText*(const PromptInput& prompt)> given;
};

/// Decodes without speculation, with the writer's sampling and limits, and appends every turn when it ends.
/// If cancelled, turns whose text has begun are kept as they are, and info().complete is false.
Status record_decode(Target& target, kernels::Backend& backend, PromptFeed& feed,
                     const RecordOptions& options, RecordingWriter& writer);

/// Returns the description of `target` that a recording stores.
RecordedTarget describe_target(const Target& target);
/// As above; `tokenizer` may be null.
RecordedTarget describe_target(const ModelConfig& config, const Tokenizer* tokenizer);

/// Measures target forward passes over M rows in a chain after `prefix` tokens. Returns the median of five
/// for M of 1 to 64, within about two seconds.
Result<std::map<int, TimeNs>> measure_verify(Target& target, int prefix);

}  // namespace draftscope
