#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "capture/record.h"
#include "engine/control/debug_gate.h"
#include "engine/draft/drafter.h"
#include "engine/verify/acceptance_rule.h"

namespace draftscope {

/// Maximum number of sequences decoded in lockstep (our default).
inline constexpr int max_batch = 1024;

/// A head evaluated in addition to the driving one. A self-paced head follows the text with its own rounds;
/// an aligned head drafts in rounds of the driving head.
struct ShadowHead {
    std::string text;  ///< canonical spec, for head_eval rows
    LmHead* head = nullptr;
    bool aligned = false;
};

struct DecodeOptions {
    TreeSpec tree;
    Sampling sampling;
    RulePtr rule = match_rule();  ///< at temperature 0, exact match replaces it (rule_in_effect())
    int batch = 1;                ///< sequences in lockstep
    int max_new = 128;
    bool ignore_eos = false;
    int warmup_steps = 2;  ///< first steps of a run, excluded from statistics; our default
    /// Rounds of each prompt in which the full head also drafts (every second one), as a reference.
    int calibration_rounds = 0;
    /// Time of the run in which the full head may follow texts that have ended, with batch 1; 0 = it does
    /// not.
    TimeNs full_shadow_ns = 0;
    bool record_nodes = true;
    /// On a device, every Nth step records spans, whose marks on its queue cost time. On the CPU, every step.
    int span_interval = 1;
    /// Evaluated by exact match: they need a recorded run under that rule and a drafter that uses a head.
    std::vector<ShadowHead> shadows;
};

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
    std::int64_t rounds = 0, drafted = 0, accepted = 0, committed = 0;
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

/// The destination of a session's records. `sink` null = decode only.
struct CaptureOutput {
    RecordSink* sink = nullptr;
    RowIds* ids = nullptr;
    RowId run_id = 0;
    TimeNs run_start = 0;                                    ///< CLOCK_MONOTONIC time that is the run's zero
    std::string head_text;                                   ///< canonical head spec for head_eval rows
    const std::vector<std::optional<int>>* ranks = nullptr;  ///< frequency rank of each token id; may be null
};

/// The decode loop over one target, drafter and head. Not thread-safe; controlled through the gate.
class DecodeSession {
  public:
    /// `head` may be null only for drafters that use none. `full_head`, for calibration rounds, may be null.
    DecodeSession(Target& target, Drafter& drafter, LmHead* head, LmHead* full_head,
                  kernels::Backend& backend, DecodeOptions options, CaptureOutput capture_output,
                  PhaseRecorder& phases, DebugGate& gate);
    ~DecodeSession();

    /// Decodes prompts until the feed has none, up to `batch` of them in lockstep. Every text equals that of
    /// the prompt decoded alone. A prompt longer than the context is bad_input. After an error nothing more
    /// is decoded, and the records of active prompts are closed.
    Status run(PromptFeed& feed);

    Result<PromptOutcome> decode(const PromptInput& prompt,
                                 const std::function<void(std::string_view piece)>& on_text = {});

    DecodeTotals totals() const;

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace draftscope
