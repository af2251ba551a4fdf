#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/jobs/bench/bench_job.h"
#include "app/jobs/reproduce/paper_tables.h"

/// Measures a paper's table again, on another target and machine, and puts the published values next to it.
namespace draftscope {

/// Options of `draftscope reproduce`. "" and 0 = as in the paper.
struct ReproduceConfig {
    std::string table;    ///< "fr-spec/table-1"
    std::string against;  ///< target whose published values are shown; "" = the table's first
    std::string model, backend = "cpu", precision = "auto";
    int threads = 0;
    std::string drafter, tree;
    std::vector<std::string> head_weights;  ///< HEAD=PATH; several of one head are told apart by their sizes
    std::vector<std::string> prompts;       ///< files instead of the shipped halves of the suites
    std::string recording;  ///< folder; acceptance is replayed along it, and nothing is decoded
    int limit = 0;          ///< conversations of each task, 0 = all
    int max_new = 0, batch = 0, repeat = 0;
    bool ignore_eos = false, raw = false;
};

/// A published value and ours. Ours is absent if the row did not run or nothing was decoded.
struct ReproducedValue {
    PaperValue paper;
    std::optional<double> ours, deviation;
};
struct ReproducedRow {
    PaperRow paper;
    std::string method;   ///< name in BenchReport::methods; "" = the row did not run
    std::string missing;  ///< why it did not run
    std::vector<std::string> notes;
    std::vector<ReproducedValue> values;
};
struct ReproducedBlock {
    PaperBlock paper;
    double temperature = 0;
    int batch = 1, repeat = 1, max_new = 0, threads = 0;
    std::string drafter, tree;  ///< the tree is resolved
    std::vector<ReproducedRow> rows;
    BenchReport bench;  ///< empty if no row can run
};
struct ReproduceReport {
    PaperTable table;
    std::string target, precision, backend;
    int vocabulary = 0, hidden = 0;
    bool synthetic = false;
    std::map<std::string, int> conversations;  ///< by the paper's task
    std::vector<ReproducedBlock> blocks;
    std::vector<std::string> differences;  ///< between the paper's measurement and this one
    bool cancelled = false;
    double seconds = 0;
};

/// Runs the methods of a table. In tables of acceptance alone they are replayed along a recording of the
/// target, given or made here. A row that lacks a file says so; if no row can run, that is bad_input. Blocks;
/// cancel through `gate`.
Result<ReproduceReport> run_reproduce(const ReproduceConfig& config, DebugGate& gate, const JobHooks& hooks);

/// Our value of a quantity: a task's if `cell` is given, else the mean over tasks. Taus count the last round
/// of a text in full, as the papers do. `full` is the row of the full head, null without one.
ReproducedValue measured_value(const PaperValue& paper, const BenchRow& row, const BenchCell* cell,
                               const BenchRow* full, bool with_prefill);

}  // namespace draftscope
