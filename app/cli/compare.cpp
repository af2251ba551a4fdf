#include "stats/compare.h"

#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "app/cli/cli.h"
#include "app/cli/options.h"
#include "app/cli/tables.h"
#include "capture/run_setting.h"
#include "storage/capture_file.h"

namespace draftscope::cli {
namespace {

using nlohmann::json;

struct CompareArguments {
    std::string a, b;
    std::vector<RowId> run_a, run_b;
    bool force = false;
    bool json = false;
    double fail_below = 0;  ///< 0 = never
};

json quantity_json(const ComparedQuantity& q) {
    json out = write_fields(join(DS_FIELDS(ComparedQuantity, name, unit, a, b, ratio),
                                 as(estimate_interval_json, field("interval", &ComparedQuantity::ratio)),
                                 field("change", change_text)),
                            q);
    if (q.a <= 0) out["ratio"] = nullptr;
    if (q.a <= 0 && q.b <= 0) out["a"] = out["b"] = out["change"] = nullptr;
    return out;
}

json side_json(const RunRow& run, const std::vector<RowId>& runs, const std::string& file) {
    json out = write_fields(join(field("run", &RunRow::id),
                                 DS_FIELDS(RunRow, name, drafter, head, tree, tier, synthetic, acceptance)),
                            run);
    out.update({{"file", file}, {"runs", runs}});
    return out;
}

/// Returns the machine's speed ratio by verifications of equal trees; null if there are none.
json machine_json(const Comparison& c) {
    if (!c.machine) return nullptr;
    constexpr auto us = [](double ns) { return ns * 1e-3; };
    json out = write_fields(join(DS_FIELDS(MachineControl, conversations, rounds, ratio, differs),
                                 as(estimate_interval_json, field("interval", &MachineControl::ratio)),
                                 as(us, join(field("a_us_per_round", &MachineControl::a_ns),
                                             field("b_us_per_round", &MachineControl::b_ns)))),
                            *c.machine);
    out.update(write_fields(
        join(field("adjusted_speed_ratio", &Comparison::adjusted_speed),
             as(estimate_interval_json, field("adjusted_speed_interval", &Comparison::adjusted_speed))),
        c));
    out["control"] = "verification of equal trees";
    return out;
}

json comparison_json(const Comparison& c, const CompareArguments& options) {
    constexpr auto quantities_json = [](const std::vector<ComparedQuantity>& all) {
        json out = json::array();
        for (const ComparedQuantity& one : all) out.push_back(quantity_json(one));
        return out;
    };
    json out = write_fields(
        join(DS_FIELDS(Comparison, forced, pairs, conversations, only_a, only_b, same_tokens, warnings,
                       verdict),
             as(list_of(DS_FIELDS(RunDifference, what, a, b, forbids)), DS_FIELDS(Comparison, differences)),
             as(quantity_json,
                join(field("tokens_per_second", &Comparison::speed), DS_FIELDS(Comparison, tau, round_time))),
             as(quantities_json, DS_FIELDS(Comparison, phases)), field("machine", machine_json)),
        c);
    out.update({{"a", side_json(c.a, c.runs_a, options.a)},
                {"b", side_json(c.b, c.runs_b, options.b)},
                {"resamples", CompareOptions{}.bootstrap.resamples},
                {"seed", CompareOptions{}.bootstrap.seed}});
    return out;
}

void print_comparison(const Comparison& c) {
    print("{}\n\n", c.verdict);
    for (const std::string& warning : c.warnings) print("note: {}\n", warning);
    print("{}\n{}\n", compare_side('A', c.a, c.runs_a), compare_side('B', c.b, c.runs_b));
    std::vector<std::vector<std::string>> rows;
    const auto add = [&](const ComparedQuantity& quantity) {
        const auto cells = compare_cells(quantity);
        rows.emplace_back(cells.begin(), cells.end());
    };
    for (const ComparedQuantity* quantity : {&c.speed, &c.tau, &c.round_time}) add(*quantity);
    for (const ComparedQuantity& phase : c.phases) add(phase);
    std::vector<std::string> names(compare_columns.begin(), compare_columns.end());
    if (c.forced) names.front() = "FORCED";
    print("\n{}{}\n", format_table(names, rows), compare_footer(c));
}

/// Groups runs of equal settings, in the order of their first runs. Baselines are included only if the file
/// has no other runs.
std::vector<std::vector<RowId>> group_by_setting(const Snapshot& snapshot) {
    std::vector<std::vector<RowId>> out;
    std::map<std::string, std::size_t> places;
    for (const bool baselines : {false, true}) {
        for (const RunRow& run : snapshot.runs) {
            if (is_baseline(run) != baselines) continue;
            const auto [place, is_new] = places.emplace(repeat_setting(run), out.size());
            if (is_new) out.emplace_back();
            out[place->second].push_back(run.id);
        }
        if (!out.empty()) break;
    }
    return out;
}

std::string ids_text(const std::vector<std::vector<RowId>>& settings) {
    std::string out;
    for (const auto& runs : settings)
        out += fmt::format("{}{}", out.empty() ? "" : "; ", fmt::join(runs, ","));
    return out;
}

/// Returns the runs of a file to compare: those requested, else all if they repeat one setting.
Result<std::vector<RowId>> pick(const Snapshot& snapshot, const std::vector<RowId>& requested,
                                const char* flag) {
    if (!requested.empty()) return requested;
    const auto settings = group_by_setting(snapshot);
    if (settings.size() == 1) return settings[0];
    return bad_input(
        "{}: contains runs of {} settings ({}); choose with {} ID[,ID...] (draftscope stats lists them)",
        snapshot.source, settings.size(), ids_text(settings), flag);
}

Result<Comparison> compare_files(const CompareArguments& options) {
    CompareOptions compare_options;
    compare_options.force = options.force;
    compare_options.how_to_force = "; --force compares them anyway and marks the result";
    DS_ASSIGN(const auto a, load_capture(options.a));
    if (!options.b.empty()) {
        DS_ASSIGN(const auto b, load_capture(options.b));
        DS_ASSIGN(const auto runs_a, pick(*a, options.run_a, "--run-a"));
        DS_ASSIGN(const auto runs_b, pick(*b, options.run_b, "--run-b"));
        return compare_runs(*a, runs_a, *b, runs_b, compare_options);
    }
    if (!options.run_a.empty() && !options.run_b.empty())
        return compare_runs(*a, options.run_a, *a, options.run_b, compare_options);
    if (options.run_a.empty() && options.run_b.empty()) {
        const auto settings = group_by_setting(*a);
        if (settings.size() == 2) return compare_runs(*a, settings[0], *a, settings[1], compare_options);
        // Two repeats of one setting, or a run and its baseline.
        if (a->runs.size() == 2) return compare_runs(*a, a->runs[0].id, *a, a->runs[1].id, compare_options);
    }
    return bad_input("{}: number of runs: {}; give a second file, or name two runs with --run-a and --run-b",
                     options.a, a->runs.size());
}

/// Fails if B's speed is shown to lie below `limit` times A's.
Status check_speed(const Comparison& c, double limit) {
    if (!c.has_times) return bad_input("--fail-below: the imported runs have no times to compare");
    const Estimate& ratio = c.speed.ratio;
    const double highest = ratio.interval ? ratio.interval->high : ratio.value;
    if (highest >= limit) return {};
    return failed("compare: B decodes at {:.3f} of A's speed, {} lies below {:g}", ratio.value,
                  ratio.interval ? fmt::format("the interval [{:.3f}, {:.3f}]", ratio.interval->low, highest)
                                 : std::string("which has no interval and"),
                  limit);
}

Result<int> do_compare(const CompareArguments& options) {
    DS_ASSIGN(const Comparison compared, compare_files(options));
    if (options.json)
        print_document(comparison_json(compared, options));
    else
        print_comparison(compared);
    if (options.fail_below > 0) DS_TRY(check_speed(compared, options.fail_below));
    return 0;
}

}  // namespace

void add_compare(CLI::App& program, Action& action) {
    auto options = std::make_shared<CompareArguments>();
    CLI::App* command = program.add_subcommand(
        "compare", "Compare two runs on the same prompts, prompt by prompt: is B faster than A, and why?");
    command->footer(
        "Example: draftscope compare full.dscope slimspec.dscope\n"
        "Record the two in turns (ABBA) on an idle machine; drift between them is otherwise part of the "
        "result.");
    command->add_option("a", options->a, "capture file A (the reference)")->required();
    command->add_option("b", options->b, "capture file B; default: A's second setting");
    add_list(*command, "--run-a", options->run_a,
             "id of A's run if its file contains several. Runs of one setting (1,2) are pooled; "
             "default: all runs of the file")
        ->allow_extra_args(false);
    add_list(*command, "--run-b", options->run_b, "ids of B's runs")->allow_extra_args(false);
    command->add_flag("--force", options->force,
                      "also compare different tiers, machines or targets, or synthetic with real, and mark "
                      "the result");
    command
        ->add_option("--fail-below", options->fail_below,
                     "exit with 1 if B is shown to decode at less than this part of A's speed, e.g. 0.97: if "
                     "the whole "
                     "interval lies below it, or the ratio itself where there is no interval")
        ->check(CLI::PositiveNumber);
    command->add_flag("--json", options->json, "print one JSON document on stdout");
    command->callback([options, &action] { action = [options] { return do_compare(*options); }; });
}

}  // namespace draftscope::cli
