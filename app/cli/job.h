#pragma once

#include <CLI/CLI.hpp>
#include <atomic>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "app/cli/cli.h"
#include "app/cli/tables.h"
#include "base/job_hooks.h"
#include "base/units.h"
#include "engine/control/debug_gate.h"

namespace draftscope::cli {

/// A progress bar on stderr. Writes a line now and then if stderr is no terminal, or a dumb one.
class ProgressBar {
  public:
    explicit ProgressBar(bool wanted, TimeNs line_interval = 60 * ns_per_s);
    ~ProgressBar();
    /// fraction < 0 = unknown.
    void update(double fraction, const std::string& what);
    void clear();

  private:
    void draw(const std::string& line);

    bool active_;
    bool terminal_;
    std::size_t drawn_ = 0;  ///< columns of the drawn line
    TimeNs line_interval_;
    TimeNs last_;
};

/// Returns the bar's line, cut to fewer than `columns` columns.
std::string progress_line(double fraction, const std::string& what, std::size_t columns);

/// Converts Ctrl-C, SIGTERM and SIGHUP into cancellation: a watcher thread cancels the gate. The third Ctrl-C
/// exits at once.
class InterruptWatch {
  public:
    explicit InterruptWatch(DebugGate& gate);
    ~InterruptWatch();
    InterruptWatch(const InterruptWatch&) = delete;
    InterruptWatch& operator=(const InterruptWatch&) = delete;

  private:
    std::atomic<bool> done_{false};
    bool hangup_ = false;  ///< SIGHUP was not ignored before
    std::thread watcher_;
};

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

/// Runs `run(hooks, gate)` with a progress bar and prints its report; Ctrl-C cancels both. Returns
/// `exit_code(report)`.
template <typename Run, typename ToJson, typename Print, typename ExitCode>
Result<int> run_job(const JobOutput& output, Run run, ToJson to_json, Print print_report,
                    ExitCode exit_code) {
    DebugGate gate;
    ProgressBar bar(!output.quiet);
    JobHooks hooks;
    hooks.on_progress = [&](double fraction, const std::string& what) { bar.update(fraction, what); };
    hooks.cancelled = [&] { return gate.cancelled(); };
    const InterruptWatch watch(gate);
    const auto done = run(hooks, gate);
    bar.clear();
    if (!done.ok()) return done.error();
    if (output.json)
        print_document(to_json(*done));
    else
        print_report(*done);
    return exit_code(*done);
}

template <typename Run, typename ToJson, typename Print>
Result<int> run_job(const JobOutput& output, Run run, ToJson to_json, Print print_report) {
    return run_job(output, run, to_json, print_report, [](const auto&) { return 0; });
}

}  // namespace draftscope::cli
