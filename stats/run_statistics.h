#pragma once

#include <optional>
#include <string>
#include <vector>

#include "capture/capture.h"
#include "capture/samples.h"
#include "stats/bootstrap.h"

/// Statistics of a run's phases and steps: robust location and spread, quantiles of large samples, and
/// intervals by resampling conversations.
namespace draftscope {

/// Location and spread of a sample.
struct Summary {
    std::int64_t n = 0;
    double total = 0, mean = 0, median = 0;
    double mad = 0;  ///< median absolute deviation x 1.4826: a standard deviation that outliers don't move
    double min = 0, max = 0;
    std::optional<double> p90, p99;  ///< type 7; absent below 36 and 368 samples
};
Summary summarise(std::vector<double> samples);

/// Returns the number of leading steps that are slower than the rest; 0 = none, or too few steps to tell. The
/// cut minimises the standard error of the mean of the remaining steps (MSER over batches of 5: White 1997).
/// It applies only if the median before it exceeds the median after it by more than 5 % and three standard
/// errors (our choice). It never exceeds a fifth of the steps.
std::size_t detect_warmup(const std::vector<TimeNs>& step_ns);

struct PhaseStatistics {
    int phase_id = 0;
    Summary ns;  ///< busy time of the phase per step in which it occurred
    double exposed_ns = 0;
    double share = 0;  ///< exposed / time of counted steps
    double gb_per_s = 0;
    std::optional<Interval> median_interval, share_interval;
};

struct RunStatistics {
    std::size_t conversations = 0;  ///< conversations with counted steps: the resampling units
    std::size_t warmup_found = 0;   ///< leading counted steps that still look like warm-up
    std::size_t warmup_cut = 0;     ///< the part of them left out of the times below
    Summary step_ns;
    std::optional<Interval> step_interval;  ///< of the median
    std::optional<Estimate> tau;            ///< over all rounds, as in RunTotals
    std::optional<Estimate> tokens_per_second;
    std::vector<PhaseStatistics> phases;  ///< in table order
};
/// `cut_warmup` leaves out the steps found by detect_warmup, in addition to steps recorded as warm-up.
RunStatistics run_statistics(const Snapshot& snapshot, RowId run_id, bool cut_warmup = false,
                             const BootstrapOptions& options = {});

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
