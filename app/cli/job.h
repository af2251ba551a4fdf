#pragma once

#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "app/cli/cli.h"
#include "app/cli/interrupt.h"
#include "app/cli/progress.h"
#include "app/cli/tables.h"

namespace draftscope::cli {

/// Output options of long-running commands: --json, --quiet.
struct JobOutput {
    bool json = false;
    bool quiet = false;
};

/// Runs `run(hooks)` with a progress bar and prints its report or error; Ctrl-C cancels it. `Hooks` has
/// members on_progress and cancelled. Returns `exit_code(report)`, or the error's exit code.
template <typename Hooks, typename Run, typename ToJson, typename Print, typename ExitCode>
int run_job(const JobOutput& output, Run run, ToJson to_json, Print print, ExitCode exit_code) {
    DebugGate gate;
    ProgressBar bar(!output.quiet);
    Hooks hooks;
    hooks.on_progress = [&](double fraction, const std::string& what) { bar.update(fraction, what); };
    hooks.cancelled = [&] { return gate.cancelled(); };
    const InterruptWatch watch(gate);
    const auto done = run(hooks);
    bar.clear();
    if (!done.ok()) return report(done.error());
    if (output.json)
        std::printf("%s\n", document_text(to_json(*done)).c_str());
    else
        print(*done);
    return exit_code(*done);
}

template <typename Hooks, typename Run, typename ToJson, typename Print>
int run_job(const JobOutput& output, Run run, ToJson to_json, Print print) {
    return run_job<Hooks>(output, run, to_json, print, [](const auto&) { return 0; });
}

}  // namespace draftscope::cli
