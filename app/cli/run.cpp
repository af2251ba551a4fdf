#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "app/cli/cli.h"
#include "app/cli/head_tables.h"
#include "app/cli/job.h"
#include "app/cli/options.h"
#include "app/cli/shard_option.h"
#include "app/cli/tables.h"
#include "app/cli/version.h"
#include "app/jobs/resolve/resolve.h"
#include "app/jobs/run/choose_tree.h"
#include "app/jobs/run/run_job.h"
#include "base/format_count.h"
#include "capture/queries.h"
#include "capture/run_setting.h"
#include "engine/draft/registry.h"
#include "stats/speedup.h"
#include "stats/sweep_table.h"

namespace draftscope::cli {
namespace {

using nlohmann::json;

struct RunArguments {
    RunConfig config;
    bool json = false;
    bool quiet = false;
    bool detail = false;
    bool use_kept_forecast = false;
    bool name_tree_auto = false;  ///< say that the tree was not chosen for this machine
    std::string shard;

    RunArguments() { config.baseline = short_baseline; }
};

json prompt_json(const PromptReport& prompt, const PromptStats& stats) {
    json out = write_fields(DS_FIELDS(PromptReport, id, category), prompt);
    out.update(write_fields(DS_FIELDS(PromptOutcome, prompt_tokens, tokens, text, finish), prompt.outcome));
    out.update(write_fields(join(DS_FIELDS(PromptStats, rounds),
                                 null_if_none(DS_FIELDS(PromptStats, tau, tau_unclipped, tokens_per_second))),
                            stats));
    return out;
}

json cupti_json(const CuptiProbe& probe) {
    if (probe.text.empty()) return nullptr;
    return write_fields(DS_FIELDS(CuptiProbe, state, text, remedy, library, version, holder), probe);
}

json gpu_json(const std::optional<kernels::BackendStats>& use) {
    using Stats = kernels::BackendStats;
    if (!use) return nullptr;
    return write_fields(
        join(field("graphs_on", &Stats::graphs_enabled), DS_FIELDS(Stats, graphs, library_products),
             field("graphs_refused", &Stats::graphs_failed),
             field("l2_window_bytes", &Stats::l2_persisting_bytes),
             null_if_none(join(field("why_refused", &Stats::graph_error), DS_FIELDS(Stats, library)))),
        *use);
}

/// Returns the effect of --numerics fast; null for exact runs.
json exact_json(const std::optional<ExactCheck>& check) {
    if (!check) return nullptr;
    constexpr auto first = [](const std::optional<ExactCheck::Position>& at) {
        return at ? json{{"prompt", at->sequence}, {"token", at->token}} : json();
    };
    return write_fields(
        join(DS_FIELDS(ExactCheck, texts, tokens), field("texts_apart", &ExactCheck::texts_with_mismatches),
             field("tokens_apart", &ExactCheck::mismatches),
             as(first, field("first_apart", &ExactCheck::first))),
        *check);
}

/// Returns the speed-up that is forecast for the conversations of the shipped acceptance.
Estimate forecast_speedup(const RunReport& report) {
    std::vector<SweepSetting> best = {report.forecasts.front()};
    rank_settings(best);
    return best.front().figures.speedup;
}

json tree_auto_json(const RunReport& report) {
    if (report.forecasts.empty()) return nullptr;
    return {{"pilot_rounds", report.pilot_rounds},
            {"kept", report.kept_forecast},
            {"interval", estimate_interval_json(forecast_speedup(report))},
            {"forecasts", to_json(report.forecasts)}};
}

json report_json(const RunReport& report, const Snapshot& snapshot, const RunConfig& config) {
    const RunRow& run = *snapshot.run(report.run_id);
    json prompts = json::array();
    // A batch begins and ends prompts in an order that differs from the file's.
    std::map<int, const PromptStats*> by_ordinal;
    const std::vector<PromptStats> stats = prompt_stats(snapshot, report.run_id);
    for (const PromptStats& one : stats) by_ordinal[snapshot.prompt(one.prompt_id)->ordinal] = &one;
    for (const PromptReport& prompt : report.prompts) {
        const auto found = by_ordinal.find(prompt.ordinal);
        if (found != by_ordinal.end()) prompts.push_back(prompt_json(prompt, *found->second));
    }
    json out = write_fields(DS_FIELDS(RunRow, target, drafter, head, tree, verify, temperature, seed, batch,
                                      tier, backend, threads, numerics, precision, synthetic, acceptance),
                            run);
    out.update(write_fields(
        join(DS_FIELDS(RunReport, cancelled, planned_prompts, pinned_workers, notes),
             field("resumed", &RunReport::resumed_conversations), field("tree_auto", tree_auto_json),
             null_if_none(DS_FIELDS(RunReport, capture)), as(cupti_json, DS_FIELDS(RunReport, cupti)),
             as(gpu_json, DS_FIELDS(RunReport, gpu)),
             as(exact_json, field("beside_exact", &RunReport::exact))),
        report));
    out.update(run_figures_json(snapshot, report.run_id));
    const json settings = json::parse(run.config_json, nullptr, false);
    for (const json& loss : list_of(DS_FIELDS(LossRow, kind, count))(report.storage_losses))
        out["losses"].push_back(loss);
    out.update({{"version", version},
                {"lossless", losslessness(run)},
                {"tier_asked", to_text(report.tier.requested)},
                {"tier_note", or_null(report.tier.why)},
                {"shard", shard_json(config.shard)},
                {"prompts", std::move(prompts)},
                {"memory", settings.value("memory", json())},
                {"template", settings.value("template", "none")}});
    return out;
}

/// Prints the forecast of --tree quick next to what came.
void print_forecast(const RunReport& report, const Snapshot& snapshot) {
    const SweepSetting& best = report.forecasts.front();
    const RunTotals totals = run_totals(snapshot, report.run_id);
    const double tau = best.total().tau().value_or(1);
    print("forecast{}: {} plain decoding over {} shipped conversations, tau {:.2f}",
          report.kept_forecast ? " kept from an earlier start" : " for this machine",
          times_text(forecast_speedup(report)), best.units.size(), tau);
    if (snapshot.run(report.run_id)->drafter == plain_drafter) {
        print("; no drafting pays off here, so drafter none was used\n");
        return;
    }
    print("; {:.2f}x at this run's tau {:.2f}", best.speedup() * totals.tau / tau, totals.tau);
    const auto came = compute_speedup(snapshot, report.run_id);
    print("{}\n", came ? fmt::format(", and {:.2f}x came", came->ratio.value) : "");
}

/// Prints one line about the choice of --tree auto or quick.
void print_tree_choice(const RunReport& report, const Snapshot& snapshot, bool quick) {
    if (report.forecasts.empty()) return;
    if (quick) return print_forecast(report, snapshot);
    const bool heads = std::any_of(report.forecasts.begin(), report.forecasts.end(), [&](const auto& one) {
        return one.head != report.forecasts.front().head;
    });
    const auto text = [&](const SweepSetting& one) {
        return fmt::format("{}{}{} {:.2f}x", heads ? one.head : "", heads ? " " : "", one.tree,
                           one.speedup());
    };
    std::string next;
    for (std::size_t i = 1; i < std::min<std::size_t>(report.forecasts.size(), 4); ++i)
        next += (next.empty() ? "" : ", ") + text(report.forecasts[i]);
    print("tree auto: {} of {} forecasts, tau {:.2f} forecast from {} pilot rounds; next {}\n",
          text(report.forecasts.front()), report.forecasts.size(),
          report.forecasts.front().total().tau().value_or(1), report.pilot_rounds, next);
    if (report.forecasts.front().speedup() < 1)
        print("tree auto: no tree of this drafter is forecast to be faster than --drafter none\n");
}

std::string cancelled_text(const RunReport& report) {
    if (!report.cancelled) return {};
    const auto whole =
        std::count_if(report.prompts.begin(), report.prompts.end(),
                      [](const PromptReport& prompt) { return prompt.outcome.finish != Finish::cancelled; });
    return fmt::format("cancelled after {} of {}; the results cover the decoded part\n", whole,
                       format_count(report.planned_prompts, "prompt"));
}

/// Prints all tables: phases with bandwidth, then acceptance, cost and memory traffic of the heads.
void print_detail(const Snapshot& snapshot, RowId run_id) {
    print("{}", latency_text(latency(snapshot, run_id)));
    print("\n{}", phase_table_text(snapshot, run_id));
    const std::string excluded = excluded_text(snapshot, run_id);
    if (!excluded.empty()) print("{}\n", excluded);
    const std::string heads = head_table_text(snapshot, run_id);
    if (!heads.empty()) print("\n{}", heads);
}

/// Prints the run's main result, then its times by phase. Prints nothing without rounds.
void print_finding(const RunReport& report, const Snapshot& snapshot, bool detail) {
    const std::string finding = finding_text(snapshot, report.run_id);
    if (!finding.empty()) print("\n{}", finding);
    if (detail) return;
    const std::string phases = phase_summary_text(snapshot, report.run_id);
    if (!phases.empty()) print("\n{}", phases);
    if (!finding.empty())
        print("more tables: --detail{}\n",
              report.capture.empty() ? "" : ", or draftscope stats on the capture");
}

/// Prints limitations of the recording and of the machine.
void print_remarks(const RunReport& report, const Snapshot& snapshot) {
    const RunRow& run = *snapshot.run(report.run_id);
    print_losses(snapshot, report.run_id);
    if (report.gpu && report.gpu->graphs_failed > 0)
        print("{} passes could not be captured as CUDA graphs and ran op by op: {}\n",
              report.gpu->graphs_failed, report.gpu->graph_error);
    if (report.exact)
        print(
            "numerics {} ({}): on the same texts exact kernels would have emitted {} of {} tokens "
            "differently, in {} of {} texts\n",
            run.numerics, report.gpu ? report.gpu->library.c_str() : "", report.exact->mismatches,
            report.exact->tokens, report.exact->texts_with_mismatches, report.exact->texts);
    if (!report.tier.why.empty()) print("tier: {}\n", report.tier.why);
    for (const LossRow& loss : report.storage_losses)
        print("not in the capture: {} rows, {}\n", loss.count, loss.kind);
}

void print_capture(const RunReport& report) {
    if (report.capture.empty()) return;
    print("\ncapture: {}{}\n", report.capture, report.storage_error.empty() ? "" : " (incomplete)");
}

void print_summary(const RunReport& report, const Snapshot& snapshot, const RunArguments& options) {
    const RunConfig& config = options.config;
    const RunRow& run = *snapshot.run(report.run_id);
    const RunTotals totals = run_totals(snapshot, report.run_id);
    print("\n{}", cancelled_text(report));
    if (report.resumed_conversations > 0)
        print("resumed: {} from {}\n", format_count(report.resumed_conversations, "conversation"),
              report.capture);
    print("{}", setup_text(run));
    if (report.demo_model)
        print("the target is a toy of 135 million parameters: judge the speed, not the text\n");
    if (run.batch > 1) print("batch {}  (tok/s of all sequences together)\n", run.batch);
    if (run.acceptance != "real") {
        print("SIMULATED ACCEPTANCE: drafts were accepted by {}, not by the target; the text means nothing\n",
              config.acceptance);
    } else {
        print("{}", verify_text(run));
    }
    if (totals.rounds == 0) {
        print("no round was decoded\n");
        print_remarks(report, snapshot);
        return print_capture(report);
    }
    print(
        "tau {:.3f}  ({} committed in {} rounds; {:.3f} unclipped)   {} tok/s decode, {:.1f} tok/s with "
        "prefill\n",
        totals.tau, totals.committed, totals.rounds, totals.tau_unclipped,
        positive(totals.tokens_per_second, 1), totals.tokens_per_second_e2e);
    print_tree_choice(report, snapshot, config.tree == quick_tree);
    print("{}", speedup_text(snapshot, report.run_id));
    if (options.detail)
        print_detail(snapshot, report.run_id);
    else if (!config.shadow.empty())
        print("\n{}", head_summary_text(snapshot, report.run_id));
    print_remarks(report, snapshot);
    print_finding(report, snapshot, options.detail);
    print_capture(report);
}

Result<int> do_run(const RunArguments& options) {
    EngineHost host;
    Recorder recorder({}, unwatched_interval);
    DebugGate gate;
    ProgressBar bar(!options.quiet);
    RunHooks hooks;
    hooks.use_kept_forecast = options.use_kept_forecast;
    const bool stream_text = !options.json && !options.quiet;
    hooks.on_progress = [&](double fraction, const std::string& what) {
        if (!stream_text || fraction >= 0) bar.update(fraction, what);
    };
    hooks.on_text = [&](std::string_view piece) {
        if (!stream_text) return;
        bar.clear();
        std::fwrite(piece.data(), 1, piece.size(), stdout);
        std::fflush(stdout);
    };
    hooks.on_title = [&](const std::string& title) {
        if (stream_text) hooks.on_text(fmt::format("--- {}\n", title));
    };
    const InterruptWatch watch(gate);
    const auto done = host.run(options.config, recorder, gate, hooks);
    bar.clear();
    if (!done.ok()) return done.error();
    if (options.name_tree_auto)
        std::fputs("the tree is the same on every machine; --tree auto measures which is fastest here\n",
                   stderr);
    recorder.flush();
    const auto snapshot = recorder.snapshot();
    if (options.json)
        print_document(report_json(*done, *snapshot, options.config));
    else
        print_summary(*done, *snapshot, options);
    std::fflush(stdout);
    if (!done->storage_error.empty()) return failed("{}", done->storage_error);
    return done->cancelled ? 130 : 0;
}

/// Without --tree and --head, the demo model runs with what is forecast to be fastest here. Other runs keep
/// the fixed tree.
void choose_default_tree(const CLI::App& command, RunArguments& options) {
    RunConfig& config = options.config;
    const bool measurable =
        drafter_traits(config.drafter).drafts && config.batch == 1 && config.shard.whole();
    if (command.get_option("--tree")->count() > 0 || !measurable) return;
    const bool named = command.get_option("--head")->count() > 0 || !config.artefacts.empty();
    const bool as_shipped = config.temperature == 0 && config.acceptance == RunConfig().acceptance;
    RunConfig forecast = config;
    forecast.tree = quick_tree;
    forecast.head = "auto";
    options.use_kept_forecast = !named && as_shipped && validate(forecast).ok();
    options.name_tree_auto = !options.use_kept_forecast && !options.quiet && !config.resume;
    if (options.use_kept_forecast) config = forecast;
}

/// Rejects options that have no effect.
Status check_used(const CLI::App& command, const RunConfig& config) {
    const std::string heads[] = {config.head, config.shadow};
    DS_TRY(check_sampling_used(config, heads));
    const DrafterInfo drafter = drafter_traits(config.drafter);
    if (drafter.drafts) return {};
    if (command.get_option("--tree")->count() > 0)
        return bad_input("--tree: drafter {} drafts nothing; leave it out or choose another drafter",
                         drafter.id);
    if (config.baseline > 0)
        return bad_input("--baseline: drafter {} is itself the baseline; leave it out", drafter.id);
    return {};
}

}  // namespace

void add_run(CLI::App& program, Action& action) {
    auto options = std::make_shared<RunArguments>();
    RunConfig& config = options->config;
    CLI::App* command = program.add_subcommand("run", "Decode prompts speculatively and measure each phase");
    command->footer(
        "Example: draftscope run --prompts assets/prompts/spec_bench_half.jsonl --limit 12 --balanced "
        "--head fr-spec:v=8192 --baseline 4 --save run.dscope");
    command->add_flag_callback(
        "--help-heads",
        [] {
            print("{}", head_help());
            throw CLI::Success();
        },
        "print every head with its paper, files and parameters");
    add_prompt_options(*command, config);
    add_shard_option(*command, options->shard, "--save");
    add_decoding_options(*command, config);
    add_shown(*command, "--head,--heads", config.head,
              "draft LM head, one of " + known_heads() +
                  "; e.g. fr-spec:v=8192. With --tree auto or quick also auto, the default then: the "
                  "head that decodes fastest. Without --tree and --head, the demo model runs under "
                  "--tree quick, whose forecast is kept");
    add_shown(*command, "--tier", config.tier,
              "depth of the measurement: 0 clocks (the only tier for comparing speeds), 1 CUPTI "
              "graph intervals, 2 every kernel");
    command
        ->add_option(
            "--baseline", config.baseline,
            "also decode the first N conversations without a drafter, in turns with the rest and as a "
            "run of its own, for the speed-up (default: 1, or --batch, if that takes at most three "
            "seconds)")
        ->check(CLI::NonNegativeNumber);
    add_spec_list(*command, "--shadow", config.shadow,
                  "further heads to evaluate: slimspec,fr-spec:v=8192 follow the text at their own "
                  "pace (exact); aligned:slimspec drafts in every round of the driving head (an "
                  "estimate). No measured time includes them");
    add_shown(
        *command, "--calibrate", config.calibration_rounds,
        "rounds of each prompt in which the full head also drafts, to place the head on the "
        "plane; in a run of few conversations it follows each text to its end if that is quick (0 = off)");
    command->add_option("--save", config.save, "capture file to write (SQLite)");
    command->add_flag("--overwrite", config.overwrite, "replace an existing capture file");
    add_resume_option(*command, config.resume);
    add_tag_option(*command, config.tags);
    command->add_option("--save-rows", config.save_rows, "record at most this many rows (0 = no limit)")
        ->check(CLI::NonNegativeNumber);
    command
        ->add_option("--save-size", config.save_size,
                     "limit the capture to this size, e.g. 500MB; indexes add about a third")
        ->transform(CLI::AsSizeValue(true));
    command->add_flag("--save-ring", config.save_ring,
                      "at that limit, drop the oldest steps instead of ending the recording");
    command->add_flag("--drop-when-full,--never-wait", config.drop_when_full,
                      "drop and count rows instead of blocking when the disk is slow");
    command->add_flag("--detail", options->detail,
                      "print all tables: phases with bandwidth; acceptance, cost and memory traffic of "
                      "heads");
    command->add_flag("--json", options->json, "print one JSON document on stdout and nothing else");
    command->add_flag("--quiet", options->quiet, "show neither text nor progress while decoding");
    command->callback([options, command, &action] {
        choose_drafter(options->config);
        check_heads_used(*command, {options->config.drafter});
        action = [options, command]() -> Result<int> {
            RunConfig& requested = options->config;
            const bool chosen = requested.tree == "auto" || requested.tree == quick_tree;
            if (chosen && command->get_option("--head")->count() == 0) requested.head = "auto";
            DS_TRY(prepare_capture(options->shard, requested));
            choose_default_tree(*command, *options);
            // An invalid option takes precedence over an option without effect.
            const Status used = check_used(*command, options->config);
            if (!used.ok() && validate(options->config).ok()) return used.error();
            return do_run(*options);
        };
    });
}

}  // namespace draftscope::cli
