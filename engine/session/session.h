#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "capture/record.h"
#include "engine/draft/drafter.h"
#include "engine/session/gate.h"
#include "engine/verify/verify.h"

namespace draftscope {

struct DecodeOptions {
    TreeSpec tree;
    Sampling sampling;
    int max_new = 128;
    bool ignore_eos = false;
    int warmup_steps = 2;  ///< first steps of a run left out of statistics; our default
    int calibration_rounds =
        0;  ///< rounds in which the full head also drafts (every other one), to place the live head
    bool record_nodes = true;
};

struct PromptInput {
    std::string id, suite, category, text;
    int turn = 0;
    std::vector<TokenId> tokens;  ///< templated and encoded
};

struct PromptOutcome {
    std::vector<TokenId> tokens;  ///< generated, trimmed at EOS and max-new (EOS itself is kept)
    std::string text;
    int prompt_tokens = 0;
    std::int64_t rounds = 0, drafted = 0, accepted = 0, committed = 0;
    TimeNs prefill_ns = 0;
    TimeNs decode_ns = 0;  ///< steps, paused time taken out
    Finish finish = Finish::none;
    double tau() const {
        return rounds > 0 ? static_cast<double>(committed) / static_cast<double>(rounds) : 0.0;
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

    /// Decodes one prompt to its end. Longer than the context: bad_input. A cancelled prompt returns what it
    /// has, finish = cancelled.
    Result<PromptOutcome> decode(const PromptInput& prompt,
                                 const std::function<void(const std::string& piece)>& on_text = {});

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace draftscope
