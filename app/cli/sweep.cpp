#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "app/cli/job.h"
#include "app/cli/options.h"
#include "app/cli/shard_option.h"
#include "app/cli/version.h"
#include "app/jobs/resolve/resolve.h"
#include "app/jobs/sweep/find_fastest.h"
#include "app/jobs/sweep/sweep_job.h"
#include "base/fields.h"
#include "base/format_count.h"
#include "storage/sql.h"

/// The commands `sweep` and `advise`.
namespace draftscope::cli {
namespace {

using nlohmann::json;

struct SweepArguments {
    SweepConfig config;
    std::string heads;
    std::string csv, shard;
    int shown = 20;
    int batch = 1;  ///< of advise
    ConfirmConfig live;
    FindFastestConfig fastest;  ///< of advise
    JobOutput output;
    CLI::Option *recording = nullptr, *drafters = nullptr;
};

constexpr auto sweep_setting_fields =
    join(DS_FIELDS(SweepSetting, drafter), null_if_none(DS_FIELDS(SweepSetting, head)),
         DS_FIELDS(SweepSetting, tree, batch, round_ms, plain_ms, cost_error, extrapolated, exact));
constexpr auto sweep_figure_fields =
    join(as(estimate_json, DS_FIELDS(SettingFigures, tau, tokens_per_second, speedup, against_full)),
         DS_FIELDS(SettingFigures, on_front, ties_with_best));
constexpr auto confirmed_fields = join(DS_FIELDS(ConfirmedSetting, tau, tokens_per_second, agrees),
                                       as(estimate_json, DS_FIELDS(ConfirmedSetting, speedup)));
constexpr auto oracle_fields =
    join(null_if_none(DS_FIELDS(OracleLine, head)),
         DS_FIELDS(OracleLine, drafters, batch, levels, tau, round_ms, tokens_per_second, speedup));
constexpr auto setting_choice_fields =
    join(as(estimate_json, DS_FIELDS(SettingChoice, tau, speedup)), DS_FIELDS(SettingChoice, same_choice));
constexpr auto advice_fields =
    join(DS_FIELDS(Advice, summary, changes, serving), field("run", &Advice::run_line));
constexpr auto sweep_profile_fields =
    join(field("file", &MachineProfile::path), DS_FIELDS(MachineProfile, kind, machine, model),
         field("controlled", [](const MachineProfile& profile) { return !profile.controls.empty(); }));
constexpr auto sweep_report_fields = DS_FIELDS(SweepReport, recording, conversations, max_new, temperature,
                                               estimates, skipped, notes, passes, seconds);

json sweep_setting_json(const SweepSetting& setting) {
    json document = write_fields(sweep_setting_fields, setting);
    document.update(write_fields(sweep_figure_fields, setting.figures));
    return document;
}

/// Returns what both commands print of the recording, the profile, the passes and the advice.
json shared_json(const SweepReport& report) {
    json document = write_fields(sweep_report_fields, report);
    document["version"] = version;
    document["profile"] = write_fields(sweep_profile_fields, report.profile);
    document["advice"] = write_fields(setting_choice_fields, report.advice.choice);
    document["advice"].update(write_fields(advice_fields, report.advice));
    return document;
}

json sweep_json(const SweepReport& report, const SweepArguments& options) {
    json document = shared_json(report);
    document["shard"] = shard_json(options.config.replay.shard);
    if (options.live.count > 0) document["confirmed"] = json::array();
    for (const ConfirmedSetting& one : report.confirmed) {
        document["confirmed"].push_back(sweep_setting_json(report.settings[one.setting.value()]));
        document["confirmed"].back()["measured"] = write_fields(confirmed_fields, one);
    }
    document["settings"] = json::array();
    for (const SweepSetting& one : report.settings) document["settings"].push_back(sweep_setting_json(one));
    document["oracles"] = list_of(oracle_fields)(report.oracles);
    return document;
}

json advise_json(const SweepReport& report) {
    json document = shared_json(report);
    const auto setting = [&](std::optional<std::size_t> place) {
        return place ? sweep_setting_json(report.settings[*place]) : json();
    };
    document["chosen"] = setting(report.advice.choice.chosen);
    document["fastest"] = setting(report.advice.choice.fastest);
    document["runner_up"] = setting(report.advice.choice.runner_up);
    document["settings"] = report.settings.size();
    if (report.confirmed.empty()) return document;
    document["live"] = json::array();
    for (const ConfirmedSetting& one : report.confirmed) {
        document["live"].push_back(write_fields(confirmed_fields, one));
        document["live"].back()["method"] = one.name;
    }
    document["live_verdict"] = report.live_verdict;
    return document;
}

/// Returns a member of sweep_setting_json() as cells: an estimate as value, low and high.
std::string csv_cells(const json& value) {
    if (value.is_object()) {
        const json& range = value["interval"];
        return csv_cells(value["value"]) +
               (range.is_null() ? ",," : "," + csv_cells(range[0]) + "," + csv_cells(range[1]));
    }
    if (value.is_null()) return "";
    if (value.is_boolean()) return value.get<bool>() ? "1" : "0";
    if (value.is_number()) return fmt::format("{}", value.get<double>());
    const auto text = value.get<std::string>();
    return text.find_first_of(",\"\n") == std::string::npos ? text : storage::sql_quoted(text, '"');
}

Status write_csv(const SweepReport& report, const std::string& path) {
    std::ofstream file(path);
    file
        << "drafter,head,tree,batch,tau,tau_low,tau_high,tokens_per_second,tokens_per_second_low,"
           "tokens_per_second_high,speedup,speedup_low,speedup_high,round_ms,exact,on_front,ties_with_best\n";
    for (const SweepSetting& one : report.settings) {
        const json row = sweep_setting_json(one);
        std::vector<std::string> cells;
        for (const char* key : {"drafter", "head", "tree", "batch", "tau", "tokens_per_second", "speedup",
                                "round_ms", "exact", "on_front", "ties_with_best"})
            cells.push_back(csv_cells(row[key]));
        file << fmt::format("{}\n", fmt::join(cells, ","));
    }
    file.close();
    if (!file) return failed("--csv {}: can't be written", path);
    return {};
}

void print_table(const SweepReport& report, int shown) {
    std::vector<std::vector<std::string>> rows;
    int batch = 0, count = 0;
    for (const SweepSetting& one : report.settings) {
        const SettingFigures& figures = one.figures;
        if (one.batch != batch) count = 0;
        batch = one.batch;
        if (++count > shown && shown > 0) continue;
        std::string marks = figures.on_front ? "front" : "";
        if (figures.ties_with_best.value_or(false)) marks += marks.empty() ? "~" : " ~";
        if (!one.exact) marks += marks.empty() ? "estimate" : ", estimate";
        if (one.extrapolated) marks += marks.empty() ? "extrapolated" : ", extrapolated";
        rows.push_back({one.drafter, or_dash(one.head), one.tree, std::to_string(one.batch),
                        with_interval(figures.tau), number(one.round_ms, 2),
                        number(figures.tokens_per_second.value, 1), with_interval(figures.speedup),
                        with_interval(figures.against_full), marks});
    }
    print("{}", format_table({"drafter", "head", "tree", "batch", "tau", "round ms", "tok/s", "x plain",
                              "x full head", ""},
                             rows));
}

/// Prints what drafts of exactly the accepted length would reach.
void print_oracles(const SweepReport& report) {
    std::vector<std::vector<std::string>> rows;
    for (const OracleLine& line : report.oracles)
        rows.push_back({fmt::format("{}", fmt::join(line.drafters, " + ")), or_dash(line.head),
                        std::to_string(line.levels), std::to_string(line.batch), number(line.tau(), 3),
                        number(line.round_ms, 2), number(line.tokens_per_second(), 1),
                        number(line.speedup(), 2)});
    if (rows.empty()) return;
    print("\noracles: chains of exactly the accepted length, the longer of two drafts\n{}",
          format_table({"drafter", "head", "at most", "batch", "tau", "round ms", "tok/s", "x plain"}, rows));
}

void print_confirmed(const SweepReport& report) {
    if (report.confirmed.empty()) return;
    std::vector<std::vector<std::string>> rows;
    for (const ConfirmedSetting& one : report.confirmed) {
        const SettingFigures* predicted = one.setting ? &report.settings[*one.setting].figures : nullptr;
        rows.push_back({one.name, predicted ? with_interval(predicted->tau) : "-", number(one.tau, 3),
                        predicted ? with_interval(predicted->speedup) : "-", with_interval(one.speedup),
                        !one.agrees   ? "-"
                        : *one.agrees ? "yes"
                                      : "NO"});
    }
    print("\nrun live on this machine, in turns with plain decoding:\n{}",
          format_table({"setting", "tau predicted", "measured", "x plain predicted", "measured", "agree"},
                       rows));
}

/// Prints what the settings were predicted from.
void print_source(const SweepReport& report) {
    print("{} on {}: {} conversations, {}; costs: {}\n", format_count(report.settings.size(), "setting"),
          report.recording, report.conversations, temperature_text(report.temperature), report.costs);
}

/// Prints estimates, skipped settings, the advice and the time.
void print_advice(const SweepReport& report) {
    for (const std::string& reason : report.estimates) print("estimate: {}\n", reason);
    for (const std::string& reason : report.skipped) print("skipped: {}\n", reason);
    for (const std::string& note : report.notes) print("note: {}\n", note);
    print("\n{}\n", report.advice.summary);
    for (const std::string& change : report.advice.changes) print("- {}\n", change);
    print("\n{}\n", report.advice.run_line);
    for (const std::string& line : report.advice.serving) print("{}\n", line);
    print("\n{} pass{} in {:.1f} s: {:.0f} settings per minute\n", report.passes,
          report.passes == 1 ? "" : "es", report.seconds,
          report.seconds > 0 ? 60 * static_cast<double>(report.settings.size()) / report.seconds : 0.0);
}

void print_sweep(const SweepReport& report, const SweepArguments& options) {
    const int shown = options.shown;
    print_source(report);
    print("\n");
    print_table(report, shown);
    if (shown > 0 && report.settings.size() > static_cast<std::size_t>(shown))
        print("the {} fastest; --show 0 prints all, --csv and --json hold all\n", shown);
    print("\nfront: nothing accepts as much in less time; ~: not shown to be slower than the fastest\n");
    print("speeds are predicted: acceptance by replay, time of a round from the profile; {}\n",
          interval_text(report.conversations));
    print_oracles(report);
    print_confirmed(report);
    print_advice(report);
}

Result<int> do_sweep(SweepArguments& options) {
    options.config.heads = split_specs(options.heads);
    Shard& shard = options.config.replay.shard;
    DS_TRY(choose_shard(options.shard, shard));
    DS_TRY(expand_path("--csv", shard, options.csv));
    DS_TRY(expand_path("--save", shard, options.config.save));
    return run_job(
        options.output,
        [&](const JobHooks& hooks, DebugGate& gate) -> Result<SweepReport> {
            DS_TRY(check_confirm(options.config, options.live));
            DS_ASSIGN(SweepReport report, run_sweep(options.config, hooks));
            if (!options.csv.empty()) DS_TRY(write_csv(report, options.csv));
            if (options.live.count > 0) {
                DS_ASSIGN(report.confirmed, confirm(report, options.config, options.live, gate, hooks));
            }
            return report;
        },
        [&](const SweepReport& report) { return sweep_json(report, options); },
        [&](const SweepReport& report) { print_sweep(report, options); });
}

/// Makes what is missing, searches, and runs the advised setting.
Result<int> do_find_fastest(SweepArguments& options) {
    FindFastestConfig& fastest = options.fastest;
    const SweepConfig& config = options.config;
    fastest.run.model = config.replay.model;
    fastest.run.precision = config.replay.precision;
    fastest.run.threads = config.replay.threads;
    fastest.run.artefacts = config.replay.artefacts;
    if (config.replay.max_new > 0) fastest.run.max_new = config.replay.max_new;
    if (options.drafters->count() > 0) fastest.drafters = config.drafters;
    fastest.run.drafter = fastest.drafters.empty() ? auto_drafter : fastest.drafters.front();
    choose_drafter(fastest.run);
    fastest.recording = config.replay.recording;
    fastest.profile = config.profile;
    fastest.heads = config.heads;
    fastest.batch = options.batch;
    fastest.save = config.save;
    return run_job(
        options.output,
        [&](const JobHooks& hooks, DebugGate& gate) {
            FindFastestHooks steps;
            static_cast<JobHooks&>(steps) = hooks;
            return find_fastest(fastest, gate, steps);
        },
        advise_json,
        [](const SweepReport& report) {
            print_source(report);
            print_advice(report);
            print_confirmed(report);
            if (!report.live_verdict.empty()) print("\n{}\n", report.live_verdict);
        });
}

Result<int> do_advise(SweepArguments& options) {
    if (!options.heads.empty()) options.config.heads = split_specs(options.heads);
    if (options.config.replay.recording.empty() || options.config.profile.empty())
        return do_find_fastest(options);
    // Larger batches cost no pass: they tell where another setting takes over.
    options.config.batches = {options.batch, 4 * options.batch, 16 * options.batch};
    return run_job(
        options.output, [&](const JobHooks& hooks, DebugGate&) { return run_search(options.config, hooks); },
        advise_json,
        [](const SweepReport& report) {
            print_source(report);
            print_advice(report);
        });
}

/// Adds the recording, the profile and the models.
void add_inputs(CLI::App& command, SweepArguments& options) {
    SweepConfig& config = options.config;
    options.recording =
        command.add_option("--recording,--trace", config.replay.recording,
                           "recording, a folder that draftscope record or record_decode.py wrote");
    command.add_option("--profile", config.profile, "costs, a file of draftscope profile-machine");
    options.drafters = add_list(command, "--drafters,--drafter", config.drafters,
                                "NAME[:PATH[,KEY=VALUE...]], comma-separated");
    options.drafters->capture_default_str();
    command.add_option("--head-weights,--artefact", config.replay.artefacts,
                       "HEAD=PATH, weights file of a head (repeatable); or file=PATH in its spec");
    command.add_option("--model", config.replay.model, "as for replay");
    add_shown(command, "--precision", config.replay.precision, "as for replay");
    command.add_option("--max-new", config.replay.max_new,
                       "truncate the texts to this many tokens (0 = as recorded)");
    add_threads_option(command, config.replay.threads);
}

/// Adds the output options, and what both commands do before they run.
void finish_command(CLI::App& command, const std::shared_ptr<SweepArguments>& options, Action& action,
                    Result<int> (*run)(SweepArguments&)) {
    add_output_options(command, options->output);
    command.callback([options, run, &command, &action] {
        join_drafters(options->config.drafters);
        check_heads_used(command, options->config.drafters);
        action = [options, run] { return run(*options); };
    });
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
    add_inputs(*command, *options);
    options->recording->required();
    add_spec_list(*command, "--heads,--head", options->heads,
                  "head specs; v=2048|4096 stands for one head per value");
    add_shown(*command, "--chain", config.trees.chain, "longest chain; 0 = none");
    add_list(*command, "--topk", config.trees.topks, "candidates per node of grown trees")
        ->capture_default_str();
    command
        ->add_option_function<std::string>(
            "--adaptive",
            [options](const std::string& one) {
                options->config.trees.adaptive.push_back("adaptive:" + one);
            },
            "also chains of adaptive length, POLICY[,key=value]; may be repeated")
        ->trigger_on_parse();
    add_shown(*command, "--depth", config.trees.depth, "deepest grown tree");
    add_list(*command, "--nodes", config.trees.nodes, "sizes of grown trees, root included")
        ->capture_default_str();
    add_list(*command, "--batch", config.batches, "batch sizes of the prediction")->capture_default_str();
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
    finish_command(*command, options, action, do_sweep);
}

void add_advise(CLI::App& program, Action& action) {
    auto options = std::make_shared<SweepArguments>();
    CLI::App* command = program.add_subcommand(
        "advise", "Search for the drafter, head, size and tree to run, and say how sure the choice is");
    command->footer(
        "Without a recording and a profile it makes both, searches, and runs the advised setting in turns "
        "with plain "
        "decoding; the demo takes about two minutes.\n"
        "Example: draftscope advise --recording demo.recording --profile machine.json --heads full --max-new "
        "8");
    add_inputs(*command, *options);
    options->recording->description(
        "recording, a folder of draftscope record; without one, texts are decoded");
    RunConfig& run = options->fastest.run;
    run.max_new = 64;
    command->add_option("--prompts", run.prompts_file,
                        "without a recording: JSONL file of the texts (default: 12 shipped conversations)");
    command->add_option("--limit", run.limit, "without a recording: conversations (default: 12)");
    command->add_option("--temperature", run.temperature, "without a recording: of the texts");
    add_spec_list(*command, "--heads,--head", options->heads,
                  "head specs (default: every head that has its files; without a profile: five of them)");
    command->add_option("--save", options->config.save,
                        "capture to write the settings and the advice to, for the window");
    command->add_option("--batch", options->batch, "batch size to choose for")
        ->check(CLI::Range(1, 1 << 16))
        ->capture_default_str();
    finish_command(*command, options, action, do_advise);
}

}  // namespace draftscope::cli
