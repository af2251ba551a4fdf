#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "capture/capture.h"
#include "capture/queries.h"
#include "profiler/stats/drift.h"

/// Finds the prompts that two sides of a comparison have in common.
namespace draftscope {

/// Work for one prompt, over counted steps. A batch's step is divided evenly among its rounds. If several
/// runs repeat one setting, it is their mean.
struct PromptWork {
    const PromptRow* prompt = nullptr;
    double rounds = 0, committed = 0, ns = 0;
    double sampled_rounds = 0;                  ///< rounds of steps whose spans were recorded
    std::array<double, max_phases> phase_ns{};  ///< exposed time by phase, over `sampled_rounds`
    VerifyTimes verify;
    std::vector<TokenId> tokens;  ///< all generated tokens, from the first run that has the prompt
};

/// A prompt with counted rounds on both sides.
struct PromptPair {
    PromptWork a, b;
    std::size_t unit = 0;  ///< index of its conversation
};
struct PromptPairs {
    std::vector<PromptPair> pairs;
    std::size_t conversations = 0;
    std::size_t only_a = 0, only_b = 0;  ///< prompts without a counterpart
    std::size_t same_tokens = 0;         ///< pairs with equal tokens
};
/// Pairs prompts by suite, id and turn, and by text if both sides have texts. Repeated names within a run are
/// paired in order.
PromptPairs pair_prompts(const Snapshot& a, std::span<const RowId> runs_a, const Snapshot& b,
                         std::span<const RowId> runs_b);

}  // namespace draftscope
