#include "app/jobs/reproduce/replayed_rows.h"

#include <algorithm>

#include "capture/run_setting.h"
#include "engine/draft/registry.h"
#include "engine/replay/replay_stats.h"

namespace draftscope {
namespace {

/// Returns the place of a head in the report; absent for "", plain decoding.
std::optional<std::size_t> place_of_head(const ReplayReport& report, const std::string& head) {
    const auto found = std::ranges::find(report.heads, head, &ReplayedHead::spec);
    if (head.empty() || found == report.heads.end()) return std::nullopt;
    return static_cast<std::size_t>(found - report.heads.begin());
}

/// Returns the totals of a head over the prompts of a task.
ReplayStats sum_task(const ReplayReport& report, std::size_t head, std::string_view task) {
    const std::vector<RecordedPrompt>& prompts = report.recording->info().prompts;
    ReplayStats stats;
    for (std::size_t p = 0; p < prompts.size(); ++p)
        if (task_of_category(prompts[p].category) == task) stats.add(report.result.rounds[head][p]);
    return stats;
}

/// Adds a repetition to the samples, whose prompts are the tasks. Plain decoding has rounds of one token.
void add_repetition(const ReplayReport& report, const std::string& head, int repetition,
                    std::span<const BenchPrompt> tasks, BenchMethodSamples& method) {
    const auto place = place_of_head(report, head);
    for (std::size_t t = 0; t < tasks.size(); ++t) {
        HeadSample& sample = method.units[repetition][t];
        if (!place) {
            sample.rounds = sample.committed = 1;
            continue;
        }
        const ReplayStats stats = sum_task(report, *place, tasks[t].category);
        sample.rounds = static_cast<double>(stats.rounds);
        sample.committed = static_cast<double>(stats.committed);
        sample.accepted = static_cast<double>(stats.accepted);
        if (repetition > 0) continue;
        method.active_rows[t] = stats.active_rows_sum;
        method.row_tokens[t] = stats.row_tokens_sum;
    }
}

void describe_replay(const ReplayReport& report, BenchReport& bench) {
    const RecordingInfo& info = report.recording->info();
    bench.target = info.target.name;
    bench.precision = report.precision;
    bench.backend = "cpu";
    bench.acceptance = "replayed";
    bench.threads = report.threads;
    bench.temperature = info.sampling.temperature;
    bench.first_seed = info.sampling.seed;
    bench.conversations = bench.finished_conversations =
        static_cast<std::size_t>(std::ranges::count(info.prompts, 0, &RecordedPrompt::turn));
}

void add_once(std::vector<std::string>& list, const std::string& text) {
    if (std::ranges::find(list, text) == list.end()) list.push_back(text);
}

}  // namespace

Result<ReplayedRows> replay_rows(ReplayConfig config, const RunConfig& run,
                                 std::span<const std::string> methods, std::span<const std::string> tasks,
                                 int repeat, const RecordingOf& recording_of, const JobHooks& hooks) {
    ReplayedRows out;
    BenchReport& bench = out.bench;
    bench.repeat = repeat;
    config.drafter = run.drafter;
    config.heads.clear();
    std::vector<std::string> texts, heads;  // of the methods; "" = no head
    for (const std::string& text : methods) {
        DS_ASSIGN(BenchMethod method, parse_bench_method(text, run));
        if (std::ranges::find(bench.methods, method.name, &BenchMethod::name) != bench.methods.end())
            continue;
        texts.push_back(text);
        heads.emplace_back();
        if (drafter_traits(method.drafter).drafts) {
            DS_ASSIGN(const HeadSpec spec, parse_head_spec(method.head));
            heads.back() = to_text(spec);
            config.heads.push_back(method.head);
        }
        bench.methods.push_back(std::move(method));
    }
    for (std::size_t t = 0; t < tasks.size(); ++t) bench.samples.prompts.push_back({tasks[t], t, 0});
    bench.samples.methods.resize(bench.methods.size());
    for (BenchMethodSamples& method : bench.samples.methods) method.resize(repeat, tasks.size());
    for (int r = 0; r < repeat; ++r) {
        DS_ASSIGN(config.recording, recording_of(r));
        DS_ASSIGN(const ReplayReport report, run_replay(config, hooks));
        if (r == 0) describe_replay(report, bench);
        for (std::size_t m = 0; m < bench.methods.size(); ++m) {
            add_repetition(report, heads[m], r, bench.samples.prompts, bench.samples.methods[m]);
            const auto place = place_of_head(report, heads[m]);
            if (!place || report.heads[*place].estimates.empty()) continue;
            add_once(out.inexact, texts[m]);
            for (const std::string& reason : report.heads[*place].estimates) add_once(out.estimates, reason);
        }
    }
    bench.table = bench_table(bench.samples);
    return out;
}

void replace_rows(BenchReport& bench, const BenchReport& decoded) {
    for (std::size_t d = 0; d < decoded.table.rows.size(); ++d) {
        const auto found = std::ranges::find(bench.methods, decoded.methods[d].name, &BenchMethod::name);
        if (found == bench.methods.end()) continue;
        BenchRow row = decoded.table.rows[d];
        row.tasks.assign(bench.table.tasks.size(), {});
        for (std::size_t t = 0; t < decoded.table.tasks.size(); ++t) {
            const auto task = std::ranges::find(bench.table.tasks, decoded.table.tasks[t]);
            if (task != bench.table.tasks.end())
                row.tasks[task - bench.table.tasks.begin()] = decoded.table.rows[d].tasks[t];
        }
        bench.table.rows[found - bench.methods.begin()] = std::move(row);
    }
    bench.cancelled = decoded.cancelled;
}

}  // namespace draftscope
