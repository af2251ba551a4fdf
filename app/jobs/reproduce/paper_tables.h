#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "app/jobs/bench/bench_job.h"
#include "base/result.h"

/// The papers' tables that can be measured again, from assets/published (docs/FORMATS.md, "Published
/// results"). run_reproduce() fills in ours.
namespace draftscope {

/// One published value, or an empty place of the table, and ours.
struct PaperValue {
    std::string column;    ///< a task of the paper, or "Average"
    std::string quantity;  ///< tau, rho_tau, tokens_per_second, ...
    std::optional<double> value, deviation;
    std::optional<Estimate> ours = {};          ///< absent if the row did not run
    std::optional<double> ours_deviation = {};  ///< over repetitions
};
/// A row: a method under one setup.
struct PaperRow {
    std::string name;      ///< "fr-spec V=32k"
    std::string head;      ///< head spec with placeholders as in fill_sizes(), or "none"
    std::string needs;     ///< why it cannot be run here: "needs ..."; "" = it can
    std::string kind;      ///< "measured"; "computed" or "copied" by the paper's authors
    std::string tau_kind;  ///< the same of tau
    std::vector<PaperValue> values;
    std::string method = {};  ///< of BenchReport::methods, as parse_bench_method() reads it; "" = none
    std::vector<std::string> notes = {};  ///< about our values
    /// Ours relative to the full head: ratios of means over tasks; absent without the full head.
    std::optional<Estimate> rho_tau = {}, speedup_vs_full = {};
};
/// The rows of one setup, which one benchmark decodes.
struct PaperBlock {
    std::string label;  ///< "T=0, batch 64"; "" = the usual one
    std::string framework, hardware, drafter_text, tree_text, max_new_text;  ///< the paper's words; "" = none
    std::string drafter, tree, verify;                                       ///< as in RunConfig
    std::string verified;               ///< how the paper checks drafts, with the place that says so
    std::optional<double> temperature;  ///< absent = the paper does not say
    std::optional<int> batch, runs;     ///< absent = the paper does not say
    int max_new = 0;
    bool with_prefill = false;  ///< speeds include the prefill
    std::string assumed;        ///< what the paper leaves open and how it is filled in
    std::vector<PaperRow> rows;
    RunConfig run = {};      ///< the settings here
    int repeat = 1;          ///< repetitions here
    BenchReport bench = {};  ///< what was measured here; empty if no row can run
};
/// A table with the values for one target.
struct PaperTable {
    std::string name;  ///< "fr-spec/table-1"
    std::string paper, citation, arxiv, table, title, note;
    std::vector<std::string> targets;  ///< that the table has values for
    std::string target;                ///< the one that `blocks` has
    int vocabulary = 0;                ///< of `target`
    std::vector<std::string> prompts;  ///< files in assets/prompts
    std::vector<std::string> columns;  ///< tasks; empty = averages alone
    /// Each task of the average: the paper's name, and the one of task_of_category().
    std::map<std::string, std::string> tasks;
    std::map<std::string, std::string> task_texts;  ///< what the paper says of a task
    std::vector<PaperBlock> blocks;

    bool has(std::string_view quantity) const;
    /// Returns the paper's name of a category's task; "" = none of the table's.
    std::string task_of(std::string_view category) const;
};

/// Returns all tables, in the papers' order, with the values for `target`; "" = for each table's first.
/// Tables without values for the target are left out.
Result<std::vector<PaperTable>> read_paper_tables(const std::string& target = {});
/// Returns a table with the values of `target`, "" = the first. Unknown names are bad_input with those that
/// are close.
Result<PaperTable> find_paper_table(const std::string& name, const std::string& target);

/// Replaces the sizes in braces. "{32768}" is a number of tokens and keeps its share of the vocabulary,
/// "{d/8}" is an eighth of the hidden size.
std::string fill_sizes(const std::string& head, int paper_vocabulary, int vocabulary, int hidden);

}  // namespace draftscope
