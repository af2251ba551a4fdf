#pragma once

#include <memory>

#include "base/result.h"
#include "engine/sequence/decode_setup.h"
#include "engine/sequence/prompt.h"

namespace draftscope {

/// Totals over a session's steps; counted = not excluded from statistics.
struct DecodeTotals {
    std::int64_t steps = 0, rounds = 0, committed = 0, counted_committed = 0;
    TimeNs decode_ns = 0, counted_ns = 0;  ///< without pauses
    /// Over counted steps, or over all steps if none is counted.
    double tokens_per_second() const {
        const bool any = counted_ns > 0;
        const TimeNs ns = any ? counted_ns : decode_ns;
        return ns > 0 ? static_cast<double>(any ? counted_committed : committed) / seconds(ns) : 0.0;
    }
};

/// The decode loop over one target, drafter and head. Not thread-safe; controlled through the gate.
class DecodeSession {
  public:
    explicit DecodeSession(DecodeSetup setup);
    ~DecodeSession();

    /// Decodes prompts until the feed has none, up to `batch` of them in lockstep. Every text equals that of
    /// the prompt decoded alone. A prompt longer than the context is bad_input. After an error nothing more
    /// is decoded, and the records of active prompts are closed.
    Status run(PromptFeed& feed);

    DecodeTotals totals() const;

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace draftscope
