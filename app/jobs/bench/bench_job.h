#pragma once

#include <string>
#include <vector>

#include "app/jobs/commands/run_config.h"
#include "base/job_hooks.h"
#include "base/notes.h"
#include "base/result.h"
#include "engine/control/debug_gate.h"
#include "stats/bench_table.h"
#include "stats/head_costs.h"
#include "stats/run_statistics.h"

/// Compares methods on the same prompts. Every method decodes a block of conversations before the next block
/// starts, and the order of the methods is reversed from block to block. Drift of the machine's speed
/// therefore affects all methods equally. Before the first block, each method decodes a conversation that
/// does not count, so that none of them pays for cold caches.
namespace draftscope {

/// A combination of drafter, head and tree.
struct BenchMethod {
    std::string drafter, head, tree;  ///< as in RunConfig
    std::string name;                 ///< "eagle3 x microspec @ chain=3"
    std::string resolved_tree = {};   ///< `tree` or the default; "" = the method drafts nothing
};
/// Parses "DRAFTER[ x HEAD][ @ TREE]". Missing parts are taken from `base`.
Result<BenchMethod> parse_bench_method(const std::string& text, const RunConfig& base);

/// Options of `draftscope bench`.
struct BenchConfig {
    /// Prompts, decoding options and capture. The capture gets a run for each method and block. Head and tree
    /// are those of methods that name none.
    RunConfig run;
    std::vector<std::string> heads;    ///< specs, each with run.drafter and run.tree
    std::vector<std::string> methods;  ///< further methods, in the syntax of parse_bench_method()
    int repeat = 0;       ///< repetitions, each with a seed of its own; 0 = 3 at temperature > 0, else 1
    int block = 4;        ///< conversations per block; fewer if the methods could not take turns otherwise
    bool plain = true;    ///< also measure --drafter none, for the speed-up
    bool control = true;  ///< decode the first method twice, for the noise floor
};

/// Samples and tables of a benchmark.
struct BenchReport {
    std::string target, precision, backend, verify;
    bool synthetic = false;
    std::string acceptance = "real";  ///< "replayed" if acceptance was simulated
    int threads = 0, batch = 1, repeat = 0, block = 0;
    double temperature = 0;
    std::uint64_t first_seed = 0;  ///< of the first repetition; each further one adds 1
    std::vector<BenchMethod> methods;
    /// By method: the number of prompts whose tokens equal those of the first method, out of `compared`.
    std::vector<std::int64_t> same, compared;
    BenchSamples samples;
    BenchTable table;
    BenchDrift drift;
    std::vector<Latency> latency;    ///< by method
    std::vector<HeadTraffic> reads;  ///< by method, over all timed rounds; 0 without a head
    Notes notes;                     ///< of all runs, each once
    double seconds = 0;
    std::string capture;        ///< the file that was written; "" = none
    std::string storage_error;  ///< why the file is incomplete; "" = it is complete
    bool cancelled = false;     ///< the table covers the conversations that every method finished
    std::size_t conversations = 0, finished_conversations = 0;  ///< in the file; finished by every method
};

/// Runs the benchmark. Blocks; cancel through `gate`.
Result<BenchReport> run_bench(const BenchConfig& config, DebugGate& gate, const JobHooks& hooks);

}  // namespace draftscope
