#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "engine/transformer/target.h"
#include "engine/verify/verify.h"

namespace draftscope {

/// Agreement of texts decoded with kernels that are not batch-invariant (--numerics fast) with exact kernels.
struct ExactCheck {
    struct Position {
        std::uint64_t sequence = 0;
        int token = 0;  ///< index in the text, 0 = the first token
    };
    int texts = 0, texts_with_mismatches = 0;
    std::int64_t tokens = 0, mismatches = 0;
    std::optional<Position> first;  ///< in the order in which the texts were checked
};

/// Re-reads the prompt and `text` and counts the tokens that the target would not have emitted. The check is
/// teacher-forced: free-running texts would stay different after the first difference.
Status check_exact(Target& target, kernels::Backend& backend, const Sampling& sampling,
                   std::uint64_t sequence, std::span<const TokenId> prompt, std::span<const TokenId> text,
                   ExactCheck& check);

}  // namespace draftscope
