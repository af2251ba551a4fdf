#pragma once

#include "engine/session/session_core.h"

namespace draftscope {

/// What cannot be decoded, said before anything is recorded of it.
Status check_prompt(const SessionCore& core, const PromptInput& prompt);

/// A sequence with room for its whole text; its records begin.
std::unique_ptr<Sequence> open_sequence(SessionCore& core, PromptInput prompt, std::uint64_t number);

/// Runs the prompt through the target and keeps the first token. Returns the text that became complete. When
/// cancelled, the sequence's finish says so.
Result<std::string> prefill_sequence(SessionCore& core, Sequence& sequence);

}  // namespace draftscope
