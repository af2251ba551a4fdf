#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "app/cli/decoding_options.h"
#include "app/cli/job.h"
#include "app/cli/options.h"
#include "app/cli/sweep_output.h"
#include "app/jobs/resolve/resolve.h"
#include "app/jobs/sweep/search.h"

namespace draftscope::cli {
namespace {

using nlohmann::json;

struct AdviseArguments {
    SweepConfig config;
    std::string heads;
    int batch = 1;
    JobOutput output;
};

const SweepRow* row_of(const SweepReport& report, std::size_t setting) {
    for (const SweepRow& row : report.rows)
        if (row.setting == setting) return &row;
    return nullptr;
}

json report_json(const SweepReport& report, const SweepConfig& config) {
    const Advice advice = advise(report, config.replay.model);
    json document = sweep_json(report, advice);
    const auto setting = [&](std::optional<std::size_t> place) {
        const SweepRow* row = place ? row_of(report, *place) : nullptr;
        return row != nullptr ? sweep_row_json(report, *row) : json();
    };
    document["chosen"] = setting(advice.choice.chosen);
    document["fastest"] = setting(advice.choice.fastest);
    document["runner_up"] = setting(advice.choice.runner_up);
    document["settings"] = report.settings.size();
    return document;
}

int do_advise(AdviseArguments& options) {
    SweepConfig& config = options.config;
    if (!options.heads.empty()) config.heads = split_specs(options.heads);
    // Larger batches cost no pass: they tell where another setting takes over.
    config.batches = {options.batch, 4 * options.batch, 16 * options.batch};
    return run_job(
        options.output, [&](const JobHooks& hooks, DebugGate&) { return run_search(config, hooks); },
        [&](const SweepReport& report) { return report_json(report, config); },
        [&](const SweepReport& report) {
            print_sweep_source(report);
            print_advice(report, advise(report, config.replay.model));
        });
}

}  // namespace

void add_advise(CLI::App& program, Action& action) {
    auto options = std::make_shared<AdviseArguments>();
    CLI::App* command = program.add_subcommand(
        "advise", "Search for the drafter, head, size and tree to run, and say how sure the choice is");
    command->footer(
        "Example: draftscope advise --recording demo.recording --profile machine.json --heads full --max-new "
        "8");
    add_sweep_inputs(*command, options->config);
    add_spec_list(*command, "--heads,--head", options->heads,
                  "head specs (default: every head that has its files)");
    command->add_option("--save", options->config.save,
                        "capture to write the settings and the advice to, for the window");
    command->add_option("--batch", options->batch, "batch size to choose for")
        ->check(CLI::Range(1, 1 << 16))
        ->capture_default_str();
    add_output_options(*command, options->output);
    command->callback([options, command, &action] {
        join_drafters(options->config.drafters);
        check_heads_used(*command, options->config.drafters);
        action = [options] { return do_advise(*options); };
    });
}

}  // namespace draftscope::cli
