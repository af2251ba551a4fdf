#pragma once

#include <optional>
#include <string>
#include <vector>

#include "profiler/cost_model.h"
#include "profiler/drift.h"

/// Decoding methods side by side over the same prompts, decoded in turns: speed against plain decoding, by
/// category, and how well the acceptance-cost model explains it. Pure maths over sums.
namespace draftscope {

struct BenchPrompt {
    std::string category;
    std::size_t conversation = 0;  ///< what is resampled: turns of one conversation share their text
    std::size_t block = 0;         ///< conversations that a method decoded in one turn
};
/// What one method did. Units by repetition and prompt; a prompt that was not decoded has no rounds.
struct BenchMethodSamples {
    std::vector<std::vector<HeadUnit>> units;      ///< [repetition][prompt]
    std::vector<std::vector<VerifyTimes>> verify;  ///< [repetition][prompt]
    std::vector<double> active_rows;  ///< [prompt], summed over the rounds of the first repetition
    std::optional<std::size_t> full;  ///< the method that differs from it by having the full head; may be it
};
struct BenchSamples {
    std::vector<BenchPrompt> prompts;
    std::vector<BenchMethodSamples> methods;
    std::optional<std::size_t> plain;  ///< the method without a drafter
};

/// Of the prompts of one category, or of all. `speedup`: times of plain decoding, over all repetitions.
struct BenchCell {
    std::size_t prompts = 0;
    double tau = 0;                ///< 0 without rounds
    double tokens_per_second = 0;  ///< counted steps of all repetitions; 0 without any
    std::optional<Estimate> speedup;
    std::size_t conversations = 0;  ///< that both decoded: what `speedup` is resampled from
    std::optional<double> spread;   ///< standard deviation of the speed-up over repetitions; two or more
    double active_rows = 0;         ///< per call, mean over rounds
};
struct BenchRow {
    BenchCell all;
    std::vector<BenchCell> categories;  ///< as BenchTable::categories
    AcceptanceCost cost;  ///< against the full head of the same drafter and tree; empty without one
};
struct BenchTable {
    std::vector<std::string> categories;  ///< in the order of the prompts
    std::vector<BenchRow> rows;           ///< by method
};
BenchTable bench_table(const BenchSamples& samples, const BootstrapOptions& options = {});

}  // namespace draftscope
