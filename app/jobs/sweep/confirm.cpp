#include "app/jobs/bench/bench_job.h"
#include "app/jobs/resolve/resolve.h"
#include "app/jobs/sweep/saved_sweep.h"
#include "app/jobs/sweep/sweep_job.h"
#include "capture/run_setting.h"

namespace draftscope {

Status check_confirm(const SweepConfig& config, const ConfirmConfig& live) {
    if (live.count == 0) return {};
    if (live.prompts_file.empty())
        return bad_input("--confirm {}: needs --prompts, the texts of the live runs", live.count);
    DS_ASSIGN(const MachineProfile profile, read_profile(config.profile));
    RunConfig run;
    run.model = config.replay.model;
    run.backend = profile.backend;
    run.precision = profile.precision;
    run.prompts_file = live.prompts_file;
    run.drafter = plain_drafter;
    const auto resolved = resolve_run(run);
    if (resolved.ok()) return {};
    return bad_input(
        "--confirm {}: {} is of back end {} and precision {}, and a run with them is not possible "
        "here: {}",
        live.count, profile.path, profile.backend, profile.precision, resolved.error().message);
}

Result<std::vector<ConfirmedSetting>> confirm(const SweepReport& report, const SweepConfig& config,
                                              const ConfirmConfig& live, DebugGate& gate,
                                              const JobHooks& hooks) {
    RunConfig run = report.run;
    run.threads = config.replay.threads;
    run.temperature = report.temperature;
    run.max_new = report.max_new;
    run.prompts_file = live.prompts_file;
    run.limit = live.limit;
    run.balanced = live.limit > 0;
    run.batch = report.settings.front().batch;
    std::vector<std::string> methods;
    for (const SweepSetting& setting : report.settings)
        if (setting.batch == run.batch && setting.figures.on_front &&
            static_cast<int>(methods.size()) < live.count)
            methods.push_back(setting_name(setting));
    return run_live(report, run, std::move(methods), gate, hooks);
}

Result<std::vector<ConfirmedSetting>> run_live(const SweepReport& report, const RunConfig& run,
                                               std::vector<std::string> methods, DebugGate& gate,
                                               const JobHooks& hooks) {
    BenchConfig bench;
    bench.run = run;
    bench.methods = std::move(methods);
    bench.control = false;
    DS_ASSIGN(const BenchReport done, run_bench(bench, gate, hooks));
    if (done.cancelled) return Error{ErrorKind::cancelled, "stopped while settings were run live"};
    std::vector<ConfirmedSetting> found;
    for (std::size_t m = 1; m < done.methods.size(); ++m) {  // the first method is plain decoding
        const BenchCell& cell = done.table.rows[m].all;
        ConfirmedSetting& one = found.emplace_back();
        one.name = bench.methods[m - 1];
        one.tau = cell.tau;
        one.tokens_per_second = cell.tokens_per_second;
        if (cell.speedup) one.speedup = *cell.speedup;
        one.batch = run.batch;
        find_setting(report, one);
    }
    return found;
}

}  // namespace draftscope
