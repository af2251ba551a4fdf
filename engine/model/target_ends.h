#pragma once

namespace draftscope {

/// A ModelConfig::architecture of which Target::build reads the embedding and the LM head alone: what
/// drafters and heads need of a target whose decode comes from a trace. Of the config, hidden, vocab,
/// context, layers (how many the target has) and tied_head count; forward and prefill fail.
inline constexpr const char* ends_architecture = "ends";

}  // namespace draftscope
