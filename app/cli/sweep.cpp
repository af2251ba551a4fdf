#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "app/cli/decoding_options.h"
#include "app/cli/estimates.h"
#include "app/cli/job.h"
#include "app/cli/options.h"
#include "app/cli/shard_option.h"
#include "app/cli/version.h"
#include "app/jobs/resolve/resolve.h"
#include "app/jobs/sweep/advice.h"
#include "app/jobs/sweep/sweep_job.h"
#include "storage/sql.h"

namespace draftscope::cli {
namespace {

using nlohmann::json;

struct Options {
    SweepConfig config;
    std::string heads;
    std::string csv, shard;
    int shown = 20;
    JobOutput output;
};

json row_json(const SweepReport& report, const SweepRow& row) {
    const SweepSetting& setting = report.settings[row.setting];
    return {{"drafter", setting.drafter},
            {"head", or_null(setting.head)},
            {"tree", setting.tree},
            {"batch", setting.batch},
            {"tau", estimate_json(row.tau)},
            {"tokens_per_second", estimate_json(row.tokens_per_second)},
            {"speedup", estimate_json(row.speedup)},
            {"against_full", estimate_json(row.against_full)},
            {"round_ms", setting.round_ms},
            {"plain_ms", setting.plain_ms},
            {"cost_error", or_null(setting.cost_error)},
            {"extrapolated", setting.extrapolated},
            {"exact", setting.exact},
            {"on_front", row.on_front},
            {"ties_with_best", row.ties_with_best ? json(*row.ties_with_best) : json(nullptr)}};
}

json advice_json(const Advice& advice) {
    return {{"summary", advice.summary},
            {"changes", advice.changes},
            {"run", advice.run_line},
            {"serving", advice.serving}};
}

json report_json(const SweepReport& report, const SweepConfig& config) {
    json rows = json::array();
    for (const SweepRow& row : report.rows) rows.push_back(row_json(report, row));
    return {{"version", version},
            {"recording", report.recording},
            {"shard", shard_json(config.replay.shard)},
            {"conversations", report.conversations},
            {"max_new", report.max_new},
            {"temperature", report.temperature},
            {"profile",
             {{"file", report.profile.path},
              {"kind", to_text(report.profile.kind)},
              {"machine", report.profile.machine},
              {"model", report.profile.model}}},
            {"settings", std::move(rows)},
            {"advice", advice_json(advise(report, config.replay.model))},
            {"estimates", report.estimates},
            {"skipped", report.skipped},
            {"passes", report.passes},
            {"seconds", report.seconds}};
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

void print_report(const SweepReport& report, const SweepConfig& config, int shown) {
    const MachineProfile& profile = report.profile;
    print("{} setting{} on {}: {} conversations, {}; costs: {} ({})\n\n", report.settings.size(),
          report.settings.size() == 1 ? "" : "s", report.recording, report.conversations,
          report.temperature > 0 ? fmt::format("T={:g}", report.temperature) : "greedy",
          profile.machine.empty() ? profile.path : profile.machine, to_text(profile.kind));
    print_table(report, shown);
    if (shown > 0 && report.rows.size() > static_cast<std::size_t>(shown))
        print("the {} fastest; --show 0 prints all, --csv and --json hold all\n", shown);
    print("\nfront: nothing accepts as much in less time; ~: not shown to be slower than the fastest\n");
    print("speeds are predicted: acceptance by replay, time of a round from the profile; {}\n",
          interval_text(report.conversations));
    for (const std::string& reason : report.estimates) print("estimate: {}\n", reason);
    for (const std::string& reason : report.skipped) print("skipped: {}\n", reason);
    const Advice advice = advise(report, config.replay.model);
    print("\n{}\n", advice.summary);
    for (const std::string& change : advice.changes) print("- {}\n", change);
    print("\n{}\n", advice.run_line);
    for (const std::string& line : advice.serving) print("{}\n", line);
    print("\n{} pass{} in {:.1f} s: {:.0f} settings per minute\n", report.passes,
          report.passes == 1 ? "" : "es", report.seconds,
          report.seconds > 0 ? 60 * static_cast<double>(report.settings.size()) / report.seconds : 0.0);
}

int do_sweep(Options& options) {
    options.config.heads = split_specs(options.heads);
    Shard& shard = options.config.replay.shard;
    Status ready = choose_shard(options.shard, shard);
    if (ready.ok()) ready = expand_path("--csv", shard, options.csv);
    if (!ready.ok()) return report(ready.error());
    return run_job(
        options.output,
        [&](const JobHooks& hooks, DebugGate&) -> Result<SweepReport> {
            DS_ASSIGN(SweepReport report, run_sweep(options.config, hooks));
            if (!options.csv.empty()) DS_TRY(write_csv(report, options.csv));
            return report;
        },
        [&](const SweepReport& report) { return report_json(report, options.config); },
        [&](const SweepReport& report) { print_report(report, options.config, options.shown); });
}

}  // namespace

void add_sweep(CLI::App& program, Action& action) {
    auto options = std::make_shared<Options>();
    SweepConfig& config = options->config;
    options->heads = "full";
    CLI::App* command = program.add_subcommand(
        "sweep",
        "Predict the speed of many drafters, heads, sizes and trees from a recording and a machine profile");
    command->footer(
        "Example: draftscope sweep --recording demo.recording --profile machine.json --heads full --chain 6 "
        "--topk "
        "2,4 --depth 3 --nodes 6,8,12");
    command
        ->add_option("--recording,--trace", config.replay.recording,
                     "recording, a folder that draftscope record or record_decode.py wrote")
        ->required();
    command->add_option("--profile", config.profile, "costs, a file of draftscope profile-machine");
    command->add_option("--drafters,--drafter", config.drafters, "NAME[:PATH], comma-separated")
        ->delimiter(',')
        ->capture_default_str();
    add_shown(*command, "--heads", options->heads,
              "head specs, comma-separated; v=2048|4096 stands for one head per value");
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
    command->add_option("--head-weights,--artefact", config.replay.artefacts,
                        "HEAD=PATH, weights file of a head (repeatable); or file=PATH in its spec");
    command->add_option("--model", config.replay.model, "as for replay");
    add_shown(*command, "--precision", config.replay.precision, "as for replay");
    command->add_option("--max-new", config.replay.max_new,
                        "truncate the texts to this many tokens (0 = as recorded)");
    add_shard_option(*command, options->shard, "--csv");
    add_threads_option(*command, config.replay.threads);
    command->add_option("--csv", options->csv, "also write every setting to this file");
    add_shown(*command, "--show", options->shown, "rows printed per batch size; 0 = all");
    add_output_options(*command, options->output);
    command->callback([options, &action] { action = [options] { return do_sweep(*options); }; });
}

}  // namespace draftscope::cli
