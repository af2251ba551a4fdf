#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "capture/record.h"
#include "engine/draft/drafter.h"
#include "engine/session/gate.h"
#include "engine/verify/replayed.h"

namespace draftscope {

/// Most sequences that may be decoded in lockstep ("our default" bound).
inline constexpr int max_batch = 1024;

/// A head evaluated beside the driving one, prepared on the same weights: at its own pace along the text, or
/// aligned, drafting in rounds of the driving head.
struct ShadowHead {
    std::string text;  ///< canonical spec, for head_eval rows
    Head* head = nullptr;
    bool aligned = false;
};

struct DecodeOptions {
    TreeSpec tree;
    Sampling sampling;
    VerifySpec verify;
    std::optional<ReplayedAcceptance> acceptance;  ///< in place of the rule; the text then means nothing
    int batch = 1;                                 ///< sequences in lockstep
    int max_new = 128;
    bool ignore_eos = false;
    int warmup_steps = 2;  ///< first steps of a run left out of statistics; our default
    /// Rounds of each prompt in which the full head also drafts (every other one), to place the live head.
    int calibration_rounds = 0;
    bool record_nodes = true;
    bool rounds_there = true;  ///< on a device, rounds that fit are its own (RoundsThere)
    /// Judged by exact match, so only with a run under that rule and a drafter that has a head; recorded
    /// only.
    std::vector<ShadowHead> shadows;
};

struct PromptInput {
    std::string id, suite, category, text;
    int turn = 0;
    std::vector<TokenId> tokens;  ///< templated and encoded
    /// Place among the prompts of the run: keys the random numbers, so that a text does not depend on the
    /// batch. Absent: counted by the session in the order in which prompts begin.
    std::optional<int> ordinal;
};

struct PromptOutcome {
    std::vector<TokenId> tokens;  ///< generated, trimmed at EOS and max-new (EOS itself is kept)
    std::string text;
    int prompt_tokens = 0;
    std::int64_t rounds = 0, drafted = 0, accepted = 0, committed = 0;
    TimeNs prefill_ns = 0;
    TimeNs decode_ns = 0;  ///< steps the prompt took part in, paused time taken out
    Finish finish = Finish::none;
    double tau() const {
        return rounds > 0 ? static_cast<double>(committed) / static_cast<double>(rounds) : 0.0;
    }
};

/// Where a run's prompts come from and their outcomes go. Called on the engine's thread.
class PromptFeed {
  public:
    virtual ~PromptFeed() = default;
    /// The next prompt that can begin; absent = none before one under way has ended, or none at all.
    virtual std::optional<PromptInput> next() = 0;
    /// Text that became complete. The sequences of a batch take turns.
    virtual void text(const PromptInput& /*prompt*/, std::string_view /*piece*/) {}
    /// In the order in which they end. A cancelled prompt has what was decoded, finish = cancelled.
    virtual void done(const PromptInput& prompt, PromptOutcome outcome) = 0;
};

/// What a session's steps add up to; counted = those not excluded from statistics.
struct DecodeTotals {
    std::int64_t steps = 0, rounds = 0, committed = 0, counted_committed = 0;
    TimeNs decode_ns = 0, counted_ns = 0;  ///< paused time taken out
    /// Over counted steps, over all when none is counted.
    double tokens_per_second() const {
        const bool any = counted_ns > 0;
        const TimeNs ns = any ? counted_ns : decode_ns;
        return ns > 0 ? static_cast<double>(any ? counted_committed : committed) / seconds(ns) : 0.0;
    }
};

/// Where a session's records go. `sink` null = decode only.
struct Recording {
    RecordSink* sink = nullptr;
    RowIds* ids = nullptr;
    RowId run_id = 0;
    TimeNs run_start = 0;                                    ///< CLOCK_MONOTONIC zero of the run's times
    std::string head_text;                                   ///< canonical head spec for head_eval rows
    const std::vector<std::optional<int>>* ranks = nullptr;  ///< frequency rank per token id, may be null
};

/// The decode loop over one target, drafter and head. Not thread-safe; the gate is its remote control.
class DecodeSession {
  public:
    /// `head` null only for drafters without one. `full_head` (may be null) serves calibration rounds.
    DecodeSession(Target& target, Drafter& drafter, Head* head, Head* full_head, kernels::Exec& exec,
                  DecodeOptions options, Recording recording, PhaseRecorder& phases, Gate& gate);
    ~DecodeSession();

    /// Decodes prompts until the feed has none: up to `batch` at a time in lockstep, one step of all of them
    /// after the other; a prompt that ends is replaced by the next one. Every text is the one that the prompt
    /// has alone. A prompt longer than the context: bad_input. After an error nothing more is decoded; the
    /// records of the prompts under way are closed with what they have.
    Status run(PromptFeed& feed);

    /// Decodes one prompt to its end: a run over a feed of one.
    Result<PromptOutcome> decode(const PromptInput& prompt,
                                 const std::function<void(std::string_view piece)>& on_text = {});

    DecodeTotals totals() const;

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace draftscope
