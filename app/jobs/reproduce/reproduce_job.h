#pragma once

#include <map>
#include <string>
#include <vector>

#include "app/jobs/reproduce/paper_tables.h"

/// Measures a paper's table again, on another target and machine, and puts the published values next to it.
namespace draftscope {

/// Options of `draftscope reproduce`. "" and 0 = as in the paper.
struct ReproduceConfig {
    std::string table;    ///< "fr-spec/table-1"
    std::string against;  ///< target whose published values are shown; "" = the table's first
    /// The settings of every method. `limit` counts the conversations of each task.
    RunConfig run;
    std::vector<std::string> head_weights;  ///< HEAD=PATH; several of one head are told apart by their sizes
    std::vector<std::string> prompts;       ///< files instead of the shipped halves of the suites
    std::string recording;  ///< folder; acceptance is replayed along it, and nothing is decoded
    int repeat = 0;

    ReproduceConfig() {
        run.drafter = run.verify = "";
        run.max_new = run.batch = 0;
    }
};

struct ReproduceReport {
    PaperTable table;  ///< with our values
    std::string target, precision, backend;
    int vocabulary = 0, hidden = 0;
    bool synthetic = false;
    std::map<std::string, int> conversations;  ///< by the paper's task
    std::vector<std::string> tasks_left_out;   ///< tasks of the paper's average that ours is without
    std::vector<std::string> differences;      ///< between the paper's measurement and this one
    bool cancelled = false;
    double seconds = 0;
};

/// Runs the methods of a table. In greedy tables of acceptance alone they are replayed along a recording of
/// the target, given or made here. A row that lacks a file says so; if no row can run, that is bad_input.
/// Blocks; cancel through `gate`.
Result<ReproduceReport> run_reproduce(const ReproduceConfig& config, DebugGate& gate, const JobHooks& hooks);

/// Returns the value with ours: a task's if `cell` is given, else the mean over tasks. Taus count the last
/// round of a text in full, as the papers do.
PaperValue measured_value(PaperValue value, const BenchRow& row, const BenchCell* cell, bool with_prefill);

}  // namespace draftscope
