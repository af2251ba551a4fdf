#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "engine/model/target.h"
#include "engine/verify/verify.h"

namespace draftscope {

/// Texts of a run whose kernels were not batch-invariant (--numerics fast), beside what exact kernels say.
struct ExactCheck {
    struct Place {
        std::uint64_t sequence = 0;
        int token = 0;  ///< of the text, 0 = the first
    };
    int texts = 0, texts_apart = 0;
    std::int64_t tokens = 0, apart = 0;
    std::optional<Place> first;  ///< in the order in which texts were checked
};

/// Teacher-forced: reads the prompt and `text` again and counts the tokens that the target would not have
/// emitted there. Not the divergence of two free-running texts, which are apart for good after one token.
Status check_exact(Target& target, kernels::Exec& exec, const Sampling& sampling, std::uint64_t sequence,
                   std::span<const TokenId> prompt, std::span<const TokenId> text, ExactCheck& check);

}  // namespace draftscope
