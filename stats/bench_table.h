#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stats/cost_model.h"
#include "stats/drift.h"

/// Compares decoding methods that decoded the same prompts in turns. The table has the speed against plain
/// decoding by category and by task, all pairs of methods, and the prediction of the acceptance-cost model.
/// Pure maths over sums.
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
    std::vector<std::vector<double>> prefill_ns;   ///< [repetition][prompt]
    /// [prompt] summed over the rounds of the first repetition.
    std::vector<double> active_rows, row_tokens;
    /// Index of the same method with the full head; may be the method itself.
    std::optional<std::size_t> full;

    /// Makes room for `repetitions` passes over `prompts` prompts.
    void resize(std::size_t repetitions, std::size_t prompts);
};
struct BenchSamples {
    std::vector<BenchPrompt> prompts;
    std::vector<BenchMethodSamples> methods;
    std::optional<std::size_t> plain;  ///< the method without a drafter
    /// The first method, decoded a second time in every block: its ratio to itself is the noise floor.
    std::optional<BenchMethodSamples> control;
};

/// Returns the task that the papers' tables show for a category of a prompt file. The eight categories of
/// MT-Bench are "Conv.", Spec-Bench's others "MT", "Summ.", "QA", "Math" and "RAG", and GSM8K is "Math"
/// (FR-Spec, arXiv 2502.14856, section 4.1). Other categories are tasks of their own.
std::string task_of_category(std::string_view category);

/// Standard deviations over repetitions, of a figure or of its mean over tasks. Absent with fewer than two.
struct BenchDeviations {
    std::optional<double> tau_sd, tau_unclipped_sd, tokens_per_second_sd, speedup_sd;
    std::optional<double> end_to_end_tokens_per_second_sd, end_to_end_speedup_sd;
};
/// Figures over the prompts of one category or task, or over all. Sums over all repetitions are divided, so
/// long texts weigh more (micro mean).
struct BenchCell : BenchDeviations {
    std::size_t prompts = 0;
    double tau = 0;            ///< 0 without rounds
    double tau_unclipped = 0;  ///< 1 + accepted / rounds; 0 without rounds
    /// Resample all conversations of the method.
    std::optional<Interval> tau_interval, tau_unclipped_interval;
    double tokens_per_second = 0;                ///< of decoding: over counted steps; 0 without any
    double end_to_end_tokens_per_second = 0;     ///< prefill included, as in Spec-Bench
    std::optional<Estimate> speedup;             ///< of decoding, relative to plain decoding
    std::optional<Estimate> end_to_end_speedup;  ///< prefill included on both sides
    std::size_t conversations = 0;  ///< conversations that both methods decoded; speed-ups resample them
    /// Per call, mean over rounds: rows of the head read, and tokens of one row's own shortlist.
    double active_rows = 0, row_tokens = 0;
};
/// Arithmetic means of the tasks' figures, as the papers' averages are.
struct BenchMacro : BenchDeviations {
    std::optional<double> tau, tokens_per_second, end_to_end_tokens_per_second, row_tokens;
    std::optional<Estimate> tau_unclipped;  ///< the papers' tau
    std::optional<Estimate> speedup, end_to_end_speedup;
    /// Relative to the full head: ratios of two means, of tau_unclipped and of speeds, as the papers'.
    std::optional<Estimate> rho_tau, speedup_vs_full, end_to_end_speedup_vs_full;
};
/// The row of one method.
struct BenchRow {
    BenchCell all;
    std::vector<BenchCell> categories;  ///< in the order of BenchTable::categories
    std::vector<BenchCell> tasks;       ///< in the order of BenchTable::tasks
    BenchMacro macro;
    AcceptanceCost cost;  ///< relative to the full head of the same drafter and tree; empty without one
};
/// Decoding speed of method `b` relative to `a`, over the conversations that both decoded.
struct BenchPair {
    std::size_t a = 0, b = 0;
    Estimate ratio;
    /// Whether the interval excludes 1. Absent with too few conversations.
    std::optional<bool> differs() const;
};
struct BenchTable {
    std::vector<std::string> categories, tasks;  ///< in the order of the prompts
    std::vector<BenchRow> rows;                  ///< by method
    std::vector<BenchPair> pairs;                ///< a < b, all methods with a speed
    std::optional<std::size_t> best;             ///< the fastest method
    /// The first method relative to itself, decoded in the same turns (an A/A pair).
    std::optional<Estimate> noise_floor;

    /// Returns the speed of method `m` relative to the fastest one. Absent without a common conversation.
    std::optional<BenchPair> against_best(std::size_t m) const;
};
BenchTable bench_table(const BenchSamples& samples, const BootstrapOptions& options = {});

/// Returns the warning if the method that ran twice differed from itself; "" if it did not.
std::string noise_floor_warning(const BenchTable& table);

/// Verification times of equal trees, compared between methods and between blocks. They show whether the
/// machine's speed changed.
struct BenchDrift {
    /// Two methods, compared over the conversations that both decoded.
    struct Methods {
        std::size_t a = 0, b = 0;
        MachineControl control;
    };
    std::vector<Methods> methods;  ///< pairs of methods that verified equal trees
    /// Blocks of one method. Values are the verification time per round of a block / of all blocks, by shape.
    struct Blocks {
        std::size_t method = 0;
        double low = 1, high = 1;
    };
    std::vector<Blocks> blocks;   ///< methods with at least two blocks
    std::size_t block_count = 0;  ///< per repetition
    std::size_t repetitions = 0;
};
BenchDrift bench_drift(const BenchSamples& samples, const BootstrapOptions& options = {});

/// Returns the warnings for the reader of the table, worst first; empty on a steady machine. `names` are the
/// methods' names.
std::vector<std::string> drift_warnings(const BenchDrift& drift, std::span<const std::string> names);

}  // namespace draftscope
