#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "capture/capture.h"
#include "capture/queries.h"
#include "stats/drift.h"

/// Finds the prompts that two sides of a comparison have in common.
namespace draftscope {

/// Work for one prompt: acceptance over all rounds, times over the steps that count. A batch's step is
/// divided evenly among its rounds. If several runs repeat one setting, it is their mean.
struct PromptWork {
    const PromptRow* prompt = nullptr;
    double rounds = 0, committed = 0;                      ///< of all steps
    double timed_rounds = 0, timed_committed = 0, ns = 0;  ///< of the steps whose time counts
    double sampled_rounds = 0;  ///< those of the timed rounds whose spans were recorded
    double untimed_rounds = 0;  ///< those whose time does not count for another reason than warm-up
    std::array<double, max_phases> phase_ns{};  ///< exposed time by phase, over `sampled_rounds`
    VerifyTimes verify;
    std::vector<TokenId> tokens;  ///< all generated tokens, from the first run that has the prompt

    void drop_times() {
        timed_rounds = timed_committed = ns = sampled_rounds = 0;
        phase_ns = {};
        verify.clear();
    }
};

/// A prompt with rounds on both sides. Its times are those of both sides or of neither.
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
