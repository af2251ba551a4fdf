#include "app/jobs/sweep/confirm.h"

#include <fmt/format.h>

#include "app/jobs/resolve/resolve.h"
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
    bench.run.model = config.replay.model;
    bench.run.backend = report.profile.backend;
    bench.run.precision = report.profile.precision;
    bench.run.threads = config.replay.threads;
    bench.run.artefacts = config.replay.artefacts;
    bench.run.temperature = report.temperature;
    bench.run.max_new = report.max_new;
    bench.run.prompts_file = live.prompts_file;
    bench.run.limit = live.limit;
    bench.run.balanced = live.limit > 0;
    bench.run.batch = report.settings[report.rows.front().setting].batch;
    bench.control = false;
    std::vector<ConfirmedSetting> found;
    for (std::size_t r = 0; r < report.rows.size() && static_cast<int>(found.size()) < live.count; ++r) {
        const SweepSetting& setting = report.settings[report.rows[r].setting];
        if (setting.batch != bench.run.batch || !report.rows[r].on_front) continue;
        const std::string head = setting.head.empty() ? std::string() : " x " + setting.head;
        bench.methods.push_back(fmt::format("{}{} @ {}", setting.drafter, head, setting.tree));
        found.emplace_back().row = r;
    }
    DS_ASSIGN(const BenchReport done, run_bench(bench, gate, hooks));
    if (done.cancelled) return Error{ErrorKind::cancelled, "stopped while settings were run live"};
    for (std::size_t i = 0; i < found.size(); ++i) {
        const BenchCell& cell = done.table.rows[i + 1].all;  // the first method is plain decoding
        found[i].tau = cell.tau;
        found[i].tokens_per_second = cell.tokens_per_second;
        if (!cell.speedup) continue;
        found[i].speedup = *cell.speedup;
        const auto& predicted = report.rows[found[i].row].speedup.interval;
        if (predicted && cell.speedup->interval)
            found[i].agrees = predicted->low <= cell.speedup->interval->high &&
                              cell.speedup->interval->low <= predicted->high;
    }
    return found;
}

}  // namespace draftscope
