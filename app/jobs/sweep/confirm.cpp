#include "app/jobs/bench/bench_job.h"
#include "app/jobs/resolve/resolve.h"
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
    BenchConfig bench;
    bench.run = report.run;
    bench.run.threads = config.replay.threads;
    bench.run.temperature = report.temperature;
    bench.run.max_new = report.max_new;
    bench.run.prompts_file = live.prompts_file;
    bench.run.limit = live.limit;
    bench.run.balanced = live.limit > 0;
    bench.run.batch = report.settings.front().batch;
    bench.control = false;
    std::vector<ConfirmedSetting> found;
    for (std::size_t s = 0; s < report.settings.size() && static_cast<int>(found.size()) < live.count; ++s) {
        const SweepSetting& setting = report.settings[s];
        if (setting.batch != bench.run.batch || !setting.figures.on_front) continue;
        bench.methods.push_back(setting_name(setting));
        found.emplace_back().setting = s;
    }
    DS_ASSIGN(const BenchReport done, run_bench(bench, gate, hooks));
    if (done.cancelled) return Error{ErrorKind::cancelled, "stopped while settings were run live"};
    for (std::size_t i = 0; i < found.size(); ++i) {
        const BenchCell& cell = done.table.rows[i + 1].all;  // the first method is plain decoding
        found[i].tau = cell.tau;
        found[i].tokens_per_second = cell.tokens_per_second;
        if (!cell.speedup) continue;
        found[i].speedup = *cell.speedup;
        const auto& predicted = report.settings[found[i].setting].figures.speedup.interval;
        if (predicted && cell.speedup->interval)
            found[i].agrees = predicted->low <= cell.speedup->interval->high &&
                              cell.speedup->interval->low <= predicted->high;
    }
    return found;
}

}  // namespace draftscope
