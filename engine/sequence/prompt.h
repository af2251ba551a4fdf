#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "capture/rows.h"

namespace draftscope {

/// A prompt to decode.
struct PromptInput {
    std::string id, suite, category, text;
    int turn = 0;
    std::vector<TokenId> tokens;  ///< after chat template and tokenizer
    /// Index among the prompts of the run. It is the key of the random numbers, so that a text does not
    /// depend on the batch. Absent = numbered in the order in which prompts begin.
    std::optional<int> ordinal;
};

/// The decoded text of a prompt with its totals.
struct PromptOutcome {
    std::vector<TokenId> tokens;  ///< generated tokens, cut at EOS (which is kept) and at max_new
    std::string text;
    int prompt_tokens = 0;
    std::int64_t rounds = 0, draft_tokens = 0, accepted = 0, committed = 0;
    TimeNs prefill_ns = 0;
    TimeNs decode_ns = 0;  ///< time of the prompt's steps, without pauses
    Finish finish = Finish::none;
    double tau() const {
        return rounds > 0 ? static_cast<double>(committed) / static_cast<double>(rounds) : 0.0;
    }
};

/// Source of prompts and receiver of their outcomes. Called on the engine thread.
class PromptFeed {
  public:
    virtual ~PromptFeed() = default;
    /// The next prompt; absent = the feed is finished or waits for an active prompt to end.
    virtual std::optional<PromptInput> next() = 0;
    /// Text that became complete. Calls for the sequences of a batch alternate.
    virtual void text(const PromptInput& /*prompt*/, std::string_view /*piece*/) {}
    /// Called when a prompt ends. A cancelled prompt has what was decoded and finish = cancelled.
    virtual void done(const PromptInput& prompt, PromptOutcome outcome) = 0;
};

}  // namespace draftscope
