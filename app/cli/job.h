#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <string>

#include "app/cli/cli.h"
#include "app/cli/interrupt.h"
#include "app/cli/progress.h"
#include "app/cli/tables.h"
#include "base/job_hooks.h"

namespace draftscope::cli {

/// Output options of long-running commands: --json, --quiet.
struct JobOutput {
    bool json = false;
    bool quiet = false;
};

/// Adds --json and --quiet.
inline void add_output_options(CLI::App& command, JobOutput& output) {
    command.add_flag("--json", output.json, "print one JSON document on stdout and nothing else");
    command.add_flag("--quiet", output.quiet, "show no progress");
}

/// Runs `run(hooks, gate)` with a progress bar and prints its report or error; Ctrl-C cancels both. Returns
/// `exit_code(report)`, or the error's exit code.
template <typename Run, typename ToJson, typename Print, typename ExitCode>
int run_job(const JobOutput& output, Run run, ToJson to_json, Print print_report, ExitCode exit_code) {
    DebugGate gate;
    ProgressBar bar(!output.quiet);
    JobHooks hooks;
    hooks.on_progress = [&](double fraction, const std::string& what) { bar.update(fraction, what); };
    hooks.cancelled = [&] { return gate.cancelled(); };
    const InterruptWatch watch(gate);
    const auto done = run(hooks, gate);
    bar.clear();
    if (!done.ok()) return report(done.error());
    if (output.json)
        print_document(to_json(*done));
    else
        print_report(*done);
    return exit_code(*done);
}

template <typename Run, typename ToJson, typename Print>
int run_job(const JobOutput& output, Run run, ToJson to_json, Print print_report) {
    return run_job(output, run, to_json, print_report, [](const auto&) { return 0; });
}

}  // namespace draftscope::cli
