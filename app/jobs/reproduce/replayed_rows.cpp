#include "app/jobs/reproduce/replayed_rows.h"

#include <algorithm>

#include "capture/run_setting.h"
#include "engine/draft/registry.h"
#include "engine/replay/replay_stats.h"

namespace draftscope {
namespace {

/// Returns the figures of a head over the prompts of a task. Plain decoding has rounds of one token.
BenchCell make_cell(const ReplayReport& report, const std::string* head, std::string_view task) {
    const std::vector<RecordedPrompt>& prompts = report.recording->info().prompts;
    ReplayStats stats;
    BenchCell cell;
    for (std::size_t p = 0; p < prompts.size(); ++p) {
        if (task_of_category(prompts[p].category) != task) continue;
        ++cell.prompts;
        for (std::size_t h = 0; head != nullptr && h < report.heads.size(); ++h)
            if (report.heads[h].spec == *head) stats.add(report.result.rounds[h][p]);
    }
    cell.tau = stats.tau().value_or(head == nullptr ? 1 : 0);
    cell.tau_unclipped = stats.tau_unclipped().value_or(cell.tau);
    cell.active_rows = stats.active_rows();
    return cell;
}

}  // namespace

Result<ReplayedRows> replay_rows(ReplayConfig config, const RunConfig& run,
                                 std::span<const std::string> methods, std::span<const std::string> tasks,
                                 const JobHooks& hooks) {
    ReplayedRows out;
    BenchReport& bench = out.bench;
    config.drafter = run.drafter;
    config.heads.clear();
    for (const std::string& text : methods) {
        DS_ASSIGN(BenchMethod method, parse_bench_method(text, run));
        if (std::ranges::find(bench.methods, method.name, &BenchMethod::name) != bench.methods.end())
            continue;
        if (drafter_traits(method.drafter).drafts) config.heads.push_back(method.head);
        bench.methods.push_back(std::move(method));
    }
    DS_ASSIGN(const ReplayReport report, run_replay(config, hooks));
    const RecordingInfo& info = report.recording->info();
    bench.target = info.target.name;
    bench.precision = report.precision;
    bench.backend = "cpu";
    bench.acceptance = "replayed";
    bench.threads = report.threads;
    bench.temperature = info.sampling.temperature;
    bench.table.tasks.assign(tasks.begin(), tasks.end());
    bench.conversations = bench.finished_conversations =
        static_cast<std::size_t>(std::ranges::count(info.prompts, 0, &RecordedPrompt::turn));
    for (const BenchMethod& method : bench.methods) {
        BenchRow row;
        std::string head;
        if (drafter_traits(method.drafter).drafts) {
            DS_ASSIGN(const HeadSpec spec, parse_head_spec(method.head));
            head = to_text(spec);
        }
        for (const std::string& task : tasks)
            row.tasks.push_back(make_cell(report, head.empty() ? nullptr : &head, task));
        bench.table.rows.push_back(std::move(row));
    }
    for (const ReplayedHead& head : report.heads)
        for (const std::string& reason : head.estimates)
            if (std::ranges::find(out.estimates, reason) == out.estimates.end())
                out.estimates.push_back(reason);
    return out;
}

}  // namespace draftscope
