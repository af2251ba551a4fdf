#pragma once

#include <optional>
#include <string>
#include <vector>

#include "profiler/stats/cost_model.h"
#include "profiler/stats/drift.h"

/// Compares decoding methods that decoded the same prompts in turns. The table has the speed against plain
/// decoding by category, and the prediction of the acceptance-cost model. Pure maths over sums.
namespace draftscope {

struct BenchPrompt {
    std::string category;
    std::size_t conversation = 0;  ///< resampling unit: turns of one conversation share their text
    std::size_t block = 0;         ///< group of conversations that a method decoded in one turn
};
/// Samples of one method, by repetition and prompt. A prompt that was not decoded has no rounds.
struct BenchMethodSamples {
    std::vector<std::vector<HeadSample>> units;    ///< [repetition][prompt]
    std::vector<std::vector<VerifyTimes>> verify;  ///< [repetition][prompt]
    std::vector<double> active_rows;  ///< [prompt], summed over the rounds of the first repetition
    /// Index of the same method with the full head; may be the method itself.
    std::optional<std::size_t> full;
};
struct BenchSamples {
    std::vector<BenchPrompt> prompts;
    std::vector<BenchMethodSamples> methods;
    std::optional<std::size_t> plain;  ///< the method without a drafter
};

/// Figures over the prompts of one category, or over all. `speedup` is relative to plain decoding, over all
/// repetitions.
struct BenchCell {
    std::size_t prompts = 0;
    double tau = 0;                ///< 0 without rounds
    double tokens_per_second = 0;  ///< over counted steps of all repetitions; 0 without any
    std::optional<Estimate> speedup;
    std::size_t conversations = 0;  ///< conversations that both methods decoded; `speedup` resamples them
    std::optional<double> spread;   ///< standard deviation of the speed-up over repetitions, if at least two
    double active_rows = 0;         ///< per call, mean over rounds
};
/// The row of one method.
struct BenchRow {
    BenchCell all;
    std::vector<BenchCell> categories;  ///< in the order of BenchTable::categories
    AcceptanceCost cost;  ///< relative to the full head of the same drafter and tree; empty without one
};
struct BenchTable {
    std::vector<std::string> categories;  ///< in the order of the prompts
    std::vector<BenchRow> rows;           ///< by method
};
BenchTable bench_table(const BenchSamples& samples, const BootstrapOptions& options = {});

}  // namespace draftscope
