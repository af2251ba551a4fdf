#include "app/cli/sweep_output.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "app/cli/cli.h"
#include "app/cli/decoding_options.h"
#include "app/cli/estimates.h"
#include "app/cli/options.h"
#include "app/cli/tables.h"
#include "app/cli/version.h"
#include "app/jobs/sweep/sweep_about.h"

namespace draftscope::cli {

using nlohmann::json;

namespace {

json advice_json(const Advice& advice) {
    return {{"summary", advice.summary},
            {"tau", estimate_json(advice.choice.tau)},
            {"speedup", estimate_json(advice.choice.speedup)},
            {"same_choice", advice.choice.same_choice},
            {"changes", advice.changes},
            {"run", advice.run_line},
            {"serving", advice.serving}};
}

}  // namespace

json sweep_row_json(const SweepReport& report, const SweepRow& row) {
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

json sweep_json(const SweepReport& report, const Advice& advice) {
    return {{"version", version},
            {"recording", report.recording},
            {"conversations", report.conversations},
            {"max_new", report.max_new},
            {"temperature", report.temperature},
            {"profile",
             {{"file", report.profile.path},
              {"kind", to_text(report.profile.kind)},
              {"controlled", !report.profile.controls.empty()},
              {"machine", report.profile.machine},
              {"model", report.profile.model}}},
            {"advice", advice_json(advice)},
            {"estimates", report.estimates},
            {"skipped", report.skipped},
            {"notes", report.notes},
            {"passes", report.passes},
            {"seconds", report.seconds}};
}

void print_sweep_source(const SweepReport& report) {
    print("{} setting{} on {}: {} conversations, {}; costs: {}\n", report.settings.size(),
          report.settings.size() == 1 ? "" : "s", report.recording, report.conversations,
          report.temperature > 0 ? fmt::format("T={:g}", report.temperature) : "greedy",
          costs_text(report.profile));
}

void print_advice(const SweepReport& report, const Advice& advice) {
    for (const std::string& reason : report.estimates) print("estimate: {}\n", reason);
    for (const std::string& reason : report.skipped) print("skipped: {}\n", reason);
    for (const std::string& note : report.notes) print("note: {}\n", note);
    print("\n{}\n", advice.summary);
    for (const std::string& change : advice.changes) print("- {}\n", change);
    print("\n{}\n", advice.run_line);
    for (const std::string& line : advice.serving) print("{}\n", line);
    print("\n{} pass{} in {:.1f} s: {:.0f} settings per minute\n", report.passes,
          report.passes == 1 ? "" : "es", report.seconds,
          report.seconds > 0 ? 60 * static_cast<double>(report.settings.size()) / report.seconds : 0.0);
}

void add_sweep_inputs(CLI::App& command, SweepConfig& config) {
    command
        .add_option("--recording,--trace", config.replay.recording,
                    "recording, a folder that draftscope record or record_decode.py wrote")
        ->required();
    command.add_option("--profile", config.profile, "costs, a file of draftscope profile-machine");
    command
        .add_option("--drafters,--drafter", config.drafters, "NAME[:PATH[,KEY=VALUE...]], comma-separated")
        ->delimiter(',')
        ->capture_default_str();
    command.add_option("--head-weights,--artefact", config.replay.artefacts,
                       "HEAD=PATH, weights file of a head (repeatable); or file=PATH in its spec");
    command.add_option("--model", config.replay.model, "as for replay");
    add_shown(command, "--precision", config.replay.precision, "as for replay");
    command.add_option("--max-new", config.replay.max_new,
                       "truncate the texts to this many tokens (0 = as recorded)");
    add_threads_option(command, config.replay.threads);
}

}  // namespace draftscope::cli
