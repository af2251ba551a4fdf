#pragma once

#include <functional>
#include <string>
#include <vector>

#include "app/jobs/commands.h"
#include "base/result.h"
#include "engine/session/gate.h"
#include "profiler/bench_table.h"
#include "profiler/head_costs.h"

/// Methods decode the same prompts in turns, so that a machine whose speed wanders slows all of them alike:
/// block after block of conversations, each with every method, forwards and backwards by turns.
namespace draftscope {

/// A way to decode: drafter, head, tree.
struct BenchMethod {
    std::string drafter, head, tree;  ///< as in RunConfig
    std::string name;                 ///< "eagle3 x microspec @ chain=3"
    std::string resolved_tree = {};   ///< with the default where it names none; "" = it drafts nothing
};
/// "DRAFTER[ x HEAD][ @ TREE]"; what is left out is taken from `base`.
Result<BenchMethod> parse_bench_method(const std::string& text, const RunConfig& base);

struct BenchConfig {
    RunConfig run;  ///< prompts and how to decode; its head and tree where a method names none
    std::vector<std::string> heads;    ///< specs, each with run.drafter and run.tree
    std::vector<std::string> methods;  ///< further ones, as parse_bench_method() reads them
    int repeat = 1;
    int block = 4;      ///< conversations of a block
    bool plain = true;  ///< --drafter none is among them, for the speed-up
};

struct BenchReport {
    std::string target, precision, backend, verify;
    bool synthetic = false;
    std::string acceptance = "real";  ///< "replayed": drafts were not kept by the target
    int threads = 0, batch = 1, repeat = 0;
    double temperature = 0;
    std::vector<BenchMethod> methods;
    /// By method: prompts whose tokens are those of the first method, of `compared` prompts.
    std::vector<std::int64_t> same, compared;
    BenchSamples samples;
    BenchTable table;
    std::vector<HeadReads> reads;  ///< by method, over all rounds whose time counts; 0 without a head
    double seconds = 0;
    bool cancelled = false;  ///< the table is of the conversations that every method had decoded
    std::size_t conversations = 0, finished_conversations = 0;  ///< of the file; of them, by every method
};

struct BenchHooks {
    std::function<void(double fraction, const std::string& what)> on_progress;
};
/// Blocks; `gate` stops it.
Result<BenchReport> run_bench(const BenchConfig& config, Gate& gate, const BenchHooks& hooks);

}  // namespace draftscope
