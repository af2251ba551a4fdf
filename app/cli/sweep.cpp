#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "app/cli/decoding_options.h"
#include "app/cli/estimates.h"
#include "app/cli/job.h"
#include "app/cli/options.h"
#include "app/cli/shard_option.h"
#include "app/cli/sweep_output.h"
#include "app/jobs/resolve/resolve.h"
#include "app/jobs/sweep/confirm.h"
#include "storage/sql.h"

namespace draftscope::cli {
namespace {

using nlohmann::json;

struct SweepArguments {
    SweepConfig config;
    std::string heads;
    std::string csv, shard;
    int shown = 20;
    ConfirmConfig live;
    std::vector<ConfirmedSetting> confirmed;
    JobOutput output;
};

json confirmed_json(const SweepReport& report, const ConfirmedSetting& one) {
    json document = sweep_row_json(report, report.rows[one.row]);
    document["measured"] = {{"tau", one.tau},
                            {"tokens_per_second", one.tokens_per_second},
                            {"speedup", estimate_json(one.speedup)},
                            {"agrees", one.agrees ? json(*one.agrees) : json(nullptr)}};
    return document;
}

json report_json(const SweepReport& report, const SweepArguments& options) {
    json document = sweep_json(report, advise(report, options.config.replay.model));
    document["shard"] = shard_json(options.config.replay.shard);
    if (options.live.count > 0) document["confirmed"] = json::array();
    for (const ConfirmedSetting& one : options.confirmed)
        document["confirmed"].push_back(confirmed_json(report, one));
    document["settings"] = json::array();
    for (const SweepRow& row : report.rows) document["settings"].push_back(sweep_row_json(report, row));
    document["oracles"] = json::array();
    for (const OracleLine& line : report.oracles)
        document["oracles"].push_back({{"drafters", line.drafters},
                                       {"head", or_null(line.head)},
                                       {"batch", line.batch},
                                       {"levels", line.levels},
                                       {"tau", line.tau()},
                                       {"round_ms", line.round_ms},
                                       {"tokens_per_second", line.tokens_per_second()},
                                       {"speedup", line.speedup()}});
    return document;
}

std::string csv_cell(const std::string& text) {
    return text.find_first_of(",\"\n") == std::string::npos ? text : storage::sql_quoted(text, '"');
}

std::string interval_cells(const Estimate& estimate) {
    if (!estimate.interval) return fmt::format("{},,", estimate.value);
    return fmt::format("{},{},{}", estimate.value, estimate.interval->low, estimate.interval->high);
}

Status write_csv(const SweepReport& report, const std::string& path) {
    std::ofstream file(path);
    file
        << "drafter,head,tree,batch,tau,tau_low,tau_high,tokens_per_second,tokens_per_second_low,"
           "tokens_per_second_high,speedup,speedup_low,speedup_high,round_ms,exact,on_front,ties_with_best\n";
    for (const SweepRow& row : report.rows) {
        const SweepSetting& setting = report.settings[row.setting];
        file << fmt::format("{},{},{},{},{},{},{},{},{},{},{}\n", csv_cell(setting.drafter),
                            csv_cell(setting.head), csv_cell(setting.tree), setting.batch,
                            interval_cells(row.tau), interval_cells(row.tokens_per_second),
                            interval_cells(row.speedup), setting.round_ms, setting.exact ? 1 : 0,
                            row.on_front ? 1 : 0,
                            row.ties_with_best ? (*row.ties_with_best ? "1" : "0") : "");
    }
    file.close();
    if (!file) return failed("--csv {}: can't be written", path);
    return {};
}

void print_table(const SweepReport& report, int shown) {
    std::vector<std::vector<std::string>> rows;
    int batch = 0, count = 0;
    for (const SweepRow& row : report.rows) {
        const SweepSetting& setting = report.settings[row.setting];
        if (setting.batch != batch) count = 0;
        batch = setting.batch;
        if (++count > shown && shown > 0) continue;
        std::string marks = row.on_front ? "front" : "";
        if (row.ties_with_best.value_or(false)) marks += marks.empty() ? "~" : " ~";
        if (!setting.exact) marks += marks.empty() ? "estimate" : ", estimate";
        if (setting.extrapolated) marks += marks.empty() ? "extrapolated" : ", extrapolated";
        rows.push_back({setting.drafter, setting.head.empty() ? "-" : setting.head, setting.tree,
                        std::to_string(setting.batch), with_interval(row.tau), number(setting.round_ms, 2),
                        fmt::format("{:.1f}", row.tokens_per_second.value), with_interval(row.speedup),
                        with_interval(row.against_full), marks});
    }
    print("{}", format_table({"drafter", "head", "tree", "batch", "tau", "round ms", "tok/s", "x plain",
                              "x full head", ""},
                             rows));
}

/// Prints what drafts of exactly the accepted length would reach.
void print_oracles(const SweepReport& report) {
    std::vector<std::vector<std::string>> rows;
    for (const OracleLine& line : report.oracles)
        rows.push_back({fmt::format("{}", fmt::join(line.drafters, " + ")),
                        line.head.empty() ? "-" : line.head, std::to_string(line.levels),
                        std::to_string(line.batch), number(line.tau(), 3), number(line.round_ms, 2),
                        fmt::format("{:.1f}", line.tokens_per_second()), number(line.speedup(), 2)});
    if (rows.empty()) return;
    print("\noracles: chains of exactly the accepted length, the longer of two drafts\n{}",
          format_table({"drafter", "head", "at most", "batch", "tau", "round ms", "tok/s", "x plain"}, rows));
}

void print_confirmed(const SweepReport& report, const SweepArguments& options) {
    if (options.confirmed.empty()) return;
    std::vector<std::vector<std::string>> rows;
    for (const ConfirmedSetting& one : options.confirmed) {
        const SweepRow& row = report.rows[one.row];
        const SweepSetting& setting = report.settings[row.setting];
        rows.push_back({setting.drafter, setting.head.empty() ? "-" : setting.head, setting.tree,
                        with_interval(row.tau), number(one.tau, 3), with_interval(row.speedup),
                        with_interval(one.speedup),
                        !one.agrees   ? "-"
                        : *one.agrees ? "yes"
                                      : "NO"});
    }
    print("\nrun live on this machine, in turns with plain decoding:\n{}",
          format_table({"drafter", "head", "tree", "tau predicted", "measured", "x plain predicted",
                        "measured", "agree"},
                       rows));
}

void print_report(const SweepReport& report, const SweepArguments& options) {
    const int shown = options.shown;
    print_sweep_source(report);
    print("\n");
    print_table(report, shown);
    if (shown > 0 && report.rows.size() > static_cast<std::size_t>(shown))
        print("the {} fastest; --show 0 prints all, --csv and --json hold all\n", shown);
    print("\nfront: nothing accepts as much in less time; ~: not shown to be slower than the fastest\n");
    print("speeds are predicted: acceptance by replay, time of a round from the profile; {}\n",
          interval_text(report.conversations));
    print_oracles(report);
    print_confirmed(report, options);
    print_advice(report, advise(report, options.config.replay.model));
}

int do_sweep(SweepArguments& options) {
    options.config.heads = split_specs(options.heads);
    Shard& shard = options.config.replay.shard;
    Status ready = choose_shard(options.shard, shard);
    if (ready.ok()) ready = expand_path("--csv", shard, options.csv);
    if (ready.ok()) ready = expand_path("--save", shard, options.config.save);
    if (!ready.ok()) return report(ready.error());
    return run_job(
        options.output,
        [&](const JobHooks& hooks, DebugGate& gate) -> Result<SweepReport> {
            DS_TRY(check_confirm(options.config, options.live));
            DS_ASSIGN(SweepReport report, run_sweep(options.config, hooks));
            if (!options.csv.empty()) DS_TRY(write_csv(report, options.csv));
            if (options.live.count > 0) {
                DS_ASSIGN(options.confirmed, confirm(report, options.config, options.live, gate, hooks));
            }
            return report;
        },
        [&](const SweepReport& report) { return report_json(report, options); },
        [&](const SweepReport& report) { print_report(report, options); });
}

}  // namespace

void add_sweep(CLI::App& program, Action& action) {
    auto options = std::make_shared<SweepArguments>();
    SweepConfig& config = options->config;
    options->heads = "full";
    CLI::App* command = program.add_subcommand(
        "sweep",
        "Predict the speed of many drafters, heads, sizes and trees from a recording and a machine profile");
    command->footer(
        "Example: draftscope sweep --recording demo.recording --profile machine.json --heads full --chain 6 "
        "--topk "
        "2,4 --depth 3 --nodes 6,8,12");
    add_sweep_inputs(*command, config);
    add_spec_list(*command, "--heads,--head", options->heads,
                  "head specs; v=2048|4096 stands for one head per value");
    add_shown(*command, "--chain", config.trees.chain, "longest chain; 0 = none");
    command->add_option("--topk", config.trees.topks, "candidates per node of grown trees")
        ->delimiter(',')
        ->capture_default_str();
    add_shown(*command, "--depth", config.trees.depth, "deepest grown tree");
    command->add_option("--nodes", config.trees.nodes, "sizes of grown trees, root included")
        ->delimiter(',')
        ->capture_default_str();
    command->add_option("--batch", config.batches, "batch sizes of the prediction")
        ->delimiter(',')
        ->capture_default_str();
    add_shard_option(*command, options->shard, "--csv");
    command->add_option("--save", config.save,
                        "capture to write the settings to; those that it has are not replayed again");
    command->add_option("--csv", options->csv, "also write every setting to this file");
    add_shown(*command, "--show", options->shown, "rows printed per batch size; 0 = all");
    command
        ->add_option("--confirm", options->live.count,
                     "then run this many of the front's fastest settings live on this machine, in turns")
        ->check(CLI::Range(0, 100));
    command->add_option("--prompts", options->live.prompts_file, "texts of the live runs, as for bench");
    command->add_option("--limit", options->live.limit, "conversations of the live runs (0 = all)");
    add_output_options(*command, options->output);
    command->callback([options, command, &action] {
        join_drafters(options->config.drafters);
        check_heads_used(*command, options->config.drafters);
        action = [options] { return do_sweep(*options); };
    });
}

}  // namespace draftscope::cli
