#pragma once

namespace draftscope {

/// A ModelConfig::architecture for which Target::build() reads only the embedding and the LM head. Drafters
/// and heads need no more if the decode comes from a recording. Of the config, only hidden, vocab, context,
/// layers (the target's count) and tied_head are used. forward() and prefill() fail.
inline constexpr const char* head_only_architecture = "ends";

}  // namespace draftscope
