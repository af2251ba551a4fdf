
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "app/cli/cli.h"
#include "app/cli/estimates.h"
#include "app/cli/tables.h"
#include "profiler/compare_text.h"
#include "storage/capture_file.h"

namespace draftscope::cli {
namespace {

using nlohmann::json;

struct Options {
    std::string a, b;
    RowId run_a = 0, run_b = 0;
    bool force = false;
    bool json = false;
};

json quantity_json(const ComparedQuantity& q) {
    return {{"name", q.name},
            {"unit", q.unit},
            {"a", q.a},
            {"b", q.b},
            {"ratio", q.a > 0 ? json(q.ratio.value) : json(nullptr)},
            {"interval", interval_of(q.ratio)},
            {"change", to_text(q.change)}};
}

json side_json(const RunRow& run, const std::string& file) {
    return {{"file", file},
            {"run", run.id},
            {"name", run.name},
            {"drafter", run.drafter},
            {"head", run.head},
            {"tree", run.tree},
            {"tier", run.tier},
            {"synthetic", run.synthetic},
            {"acceptance", run.acceptance}};
}

json comparison_json(const Comparison& c, const Options& options) {
    json differences = json::array();
    for (const RunDifference& d : c.differences)
        differences.push_back({{"what", d.what}, {"a", d.a}, {"b", d.b}, {"forbids", d.forbids}});
    json phases = json::array();
    for (const ComparedQuantity& phase : c.phases) phases.push_back(quantity_json(phase));
    return {{"a", side_json(c.a, options.a)},
            {"b", side_json(c.b, options.b)},
            {"differences", differences},
            {"forced", c.forced},
            {"pairs", c.pairs},
            {"conversations", c.conversations},
            {"only_a", c.only_a},
            {"only_b", c.only_b},
            {"same_tokens", c.same_tokens},
            {"resamples", CompareOptions{}.bootstrap.resamples},
            {"seed", CompareOptions{}.bootstrap.seed},
            {"tokens_per_second", quantity_json(c.speed)},
            {"tau", quantity_json(c.tau)},
            {"round_time", quantity_json(c.round_time)},
            {"phases", phases},
            {"warnings", c.warnings},
            {"verdict", c.verdict}};
}

void print_comparison(const Comparison& c) {
    std::printf("%s\n\n", c.verdict.c_str());
    for (const std::string& warning : c.warnings) std::printf("note: %s\n", warning.c_str());
    for (const auto& [letter, run] : {std::pair{'A', &c.a}, {'B', &c.b}})
        std::printf("%s\n", compare_side(letter, *run).c_str());
    std::vector<std::vector<std::string>> rows;
    const auto add = [&](const ComparedQuantity& quantity) {
        const auto cells = compare_cells(quantity);
        rows.emplace_back(cells.begin(), cells.end());
    };
    for (const ComparedQuantity* quantity : {&c.speed, &c.tau, &c.round_time}) add(*quantity);
    for (const ComparedQuantity& phase : c.phases) add(phase);
    std::vector<std::string> names(compare_columns.begin(), compare_columns.end());
    if (c.forced) names.front() = "FORCED";
    std::printf("\n%s%s\n", format_table(names, rows).c_str(), compare_footer(c).c_str());
}

/// The run to take of a file: the one asked for, else its only one.
Result<RowId> pick(const Snapshot& snapshot, RowId asked, const char* flag) {
    if (asked != 0) return asked;
    if (snapshot.runs.size() == 1) return snapshot.runs[0].id;
    return bad_input("{}: holds {} runs; say which with {} ID (`draftscope stats` lists them)",
                     snapshot.source, snapshot.runs.size(), flag);
}

Result<Comparison> compare_files(const Options& options) {
    CompareOptions how;
    how.force = options.force;
    DS_ASSIGN(const auto a, load_capture(options.a));
    if (!options.b.empty()) {
        DS_ASSIGN(const auto b, load_capture(options.b));
        DS_ASSIGN(const RowId run_a, pick(*a, options.run_a, "--run-a"));
        DS_ASSIGN(const RowId run_b, pick(*b, options.run_b, "--run-b"));
        return compare_runs(*a, run_a, *b, run_b, how);
    }
    if (options.run_a != 0 && options.run_b != 0)
        return compare_runs(*a, options.run_a, *a, options.run_b, how);
    if (a->runs.size() == 2 && options.run_a == 0 && options.run_b == 0)
        return compare_runs(*a, a->runs[0].id, *a, a->runs[1].id, how);
    return bad_input("{}: holds {} run(s); give a second file, or name two runs with --run-a and --run-b",
                     options.a, a->runs.size());
}

int do_compare(const Options& options) {
    const auto compared = compare_files(options);
    if (!compared.ok()) return report(compared.error());
    if (options.json)
        std::printf("%s\n", document_text(comparison_json(*compared, options)).c_str());
    else
        print_comparison(*compared);
    return 0;
}

}  // namespace

void add_compare(CLI::App& program, Action& action) {
    auto options = std::make_shared<Options>();
    CLI::App* command = program.add_subcommand(
        "compare", "Two runs over the same prompts, prompt by prompt: is B faster than A, and why?");
    command->footer(
        "Example: draftscope compare full.dscope slimspec.dscope\n"
        "Record the two in turns (ABBA) on an idle machine; drift between them is otherwise part of the "
        "result.");
    command->add_option("a", options->a, "capture file A (the reference)")->required();
    command->add_option("b", options->b, "capture file B; without one, A's second run is B");
    command->add_option("--run-a", options->run_a, "id of A's run, where its file holds several");
    command->add_option("--run-b", options->run_b, "id of B's run");
    command->add_flag("--force", options->force,
                      "compare other tiers, machines, targets or synthetic with real, and mark the result");
    command->add_flag("--json", options->json, "print one JSON document on stdout");
    command->callback([options, &action] { action = [options] { return do_compare(*options); }; });
}

}  // namespace draftscope::cli
