#pragma once

#include "engine/decode/decode_context.h"

namespace draftscope {

/// Returns an error if the prompt cannot be decoded. Call before any record of it.
Status check_prompt(const DecodeContext& core, const PromptInput& prompt);

/// Creates a sequence with memory for its complete text and starts its records.
std::unique_ptr<Sequence> open_sequence(DecodeContext& core, PromptInput prompt, std::uint64_t number);

/// Runs the prompt through the target and keeps the first token. Returns the printable text so far. If
/// cancelled, the sequence's finish is Finish::cancelled.
Result<std::string> prefill_sequence(DecodeContext& core, Sequence& sequence);

}  // namespace draftscope
