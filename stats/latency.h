#pragma once

#include <string>
#include <vector>

#include "capture/capture.h"
#include "stats/run_statistics.h"

/// Latency of a run, and its speed by the length of the context and the position in the text.
namespace draftscope {

/// Times that a reader of the text waits, in milliseconds.
struct Latency {
    /// Time to first token of each prompt: its prefill. Waiting for a place in a batch is not part of it.
    Summary first_token_ms;
    /// Inter-token latency of each token of counted steps. It is the time of the step divided by the tokens
    /// that its round committed.
    Summary inter_token_ms;
    /// Time between two outputs of a sequence: a counted step, whose tokens arrive together.
    Summary output_gap_ms;
};
Latency latency(const Snapshot& snapshot, RowId run_id);

/// The samples of one or several runs, in milliseconds.
struct LatencySamples {
    std::vector<double> first_token, inter_token, output_gap;
    void add(const Snapshot& snapshot, RowId run_id);
    Latency summarised() const;
};

/// The rounds whose context length, or position in the generated text, lies in [from, to).
struct PositionBin {
    int from = 0, to = 0;
    std::int64_t rounds = 0, accepted = 0, committed = 0;
    double tau = 0;
    double tokens_per_second = 0;  ///< over counted steps, a step's time shared by its rounds; 0 without any
};
/// Returns the bins with rounds, by powers of two from 64 tokens on. `by_context`: the committed tokens
/// before the round, prompt included; else the generated ones among them.
std::vector<PositionBin> speed_by_position(const Snapshot& snapshot, RowId run_id, bool by_context);

/// Returns "64 .. 127".
std::string to_text(const PositionBin& bin);

}  // namespace draftscope
