#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "app/cli/cli.h"
#include "app/cli/finding.h"
#include "app/cli/head_tables.h"
#include "app/cli/statistics_tables.h"
#include "app/cli/tables.h"
#include "capture/machine_facts.h"
#include "capture/phase_names.h"
#include "capture/queries.h"
#include "storage/capture_file.h"

namespace draftscope::cli {
namespace {

using nlohmann::json;

struct Options {
    std::string file;
    bool json = false;
    bool cut_warmup = false;
};

json counters_json(const Snapshot& snapshot, RowId run_id) {
    json out = json::array();
    for (const GpuCounterStats& row : gpu_counter_stats(snapshot, run_id))
        out.push_back({{"phase", phase_rows[static_cast<std::size_t>(row.phase_id)].name},
                       {"name", row.name},
                       {"steps", row.count},
                       {"total", row.total},
                       {"per_step", row.per_step()}});
    return out;
}

json run_json(const Snapshot& snapshot, const RunRow& run, bool cut_warmup) {
    return {{"id", run.id},
            {"name", run.name},
            {"started_utc", run.started_utc},
            {"ended", run.ended == RunEnd::live ? json(nullptr) : json(to_text(run.ended))},
            {"target", run.target},
            {"drafter", run.drafter},
            {"head", run.head},
            {"tree", run.tree},
            {"verify", run.verify},
            {"lossless", losslessness(run)},
            {"tier", run.tier},
            {"synthetic", run.synthetic},
            {"acceptance", run.acceptance},
            {"totals", totals_json(snapshot, run.id)},
            {"phases", phases_json(snapshot, run.id)},
            {"statistics", statistics_json(run_statistics(snapshot, run.id, cut_warmup))},
            {"heads", heads_json(snapshot, run.id)},
            {"gpu_counters", counters_json(snapshot, run.id)},
            {"losses", losses_json(snapshot, run.id)}};
}

void print_run(const Snapshot& snapshot, const RunRow& run, bool cut_warmup) {
    const RunTotals totals = run_totals(snapshot, run.id);
    const std::string ended = run.ended == RunEnd::live ? "unfinished" : std::string(to_text(run.ended));
    std::printf("run %lld  %s  %s%s%s\n", static_cast<long long>(run.id), run.started_utc.c_str(),
                ended.c_str(), run.synthetic ? "  SYNTHETIC WEIGHTS" : "",
                run.acceptance == "real" ? "" : "  acceptance replayed");
    std::printf("%s  drafter %s  head %s  tree %s  %s  %d threads  %s\n", run.target.c_str(),
                run.drafter.c_str(), run.head.empty() ? "-" : run.head.c_str(), run.tree.c_str(),
                run.precision.c_str(), run.threads, run.tier.c_str());
    std::printf("%s", verify_text(run).c_str());
    std::printf("%s", finding_text(snapshot, run.id, std::nullopt).c_str());
    std::printf("tau %.3f  (%lld committed in %lld rounds)   %.1f tok/s decode\n\n%s", totals.tau,
                static_cast<long long>(totals.committed), static_cast<long long>(totals.rounds),
                totals.tokens_per_second,
                statistics_text(run_statistics(snapshot, run.id, cut_warmup), probed_gb_per_s(run)).c_str());
    std::vector<std::vector<std::string>> counters;
    for (const GpuCounterStats& row : gpu_counter_stats(snapshot, run.id))
        counters.push_back({std::string(phase_rows[static_cast<std::size_t>(row.phase_id)].name), row.name,
                            fmt::format("{}", row.count), fmt::format("{:.4g}", row.per_step())});
    if (!counters.empty())
        std::printf("\n%s", format_table({"phase", "GPU counter", "steps", "per step"}, counters).c_str());
    const std::string excluded = excluded_text(snapshot, run.id);
    if (!excluded.empty()) std::printf("%s\n", excluded.c_str());
    for (const LossRow& loss : snapshot.losses)
        if (loss.run_id == run.id)
            std::printf("lost: %lld %s\n", static_cast<long long>(loss.count), loss.kind.c_str());
    std::printf("\n%s\n", head_table_text(snapshot, run.id).c_str());
}

int do_stats(const Options& options) {
    auto loaded = load_capture(options.file);
    if (!loaded.ok()) return report(loaded.error());
    const Snapshot& snapshot = **loaded;
    if (options.json) {
        json runs = json::array();
        for (const RunRow& run : snapshot.runs) runs.push_back(run_json(snapshot, run, options.cut_warmup));
        std::printf("%s\n", document_text({{"file", options.file}, {"runs", runs}}).c_str());
        return 0;
    }
    if (snapshot.runs.empty()) std::printf("%s holds no run\n", options.file.c_str());
    for (const RunRow& run : snapshot.runs) print_run(snapshot, run, options.cut_warmup);
    return 0;
}

}  // namespace

void add_stats(CLI::App& program, Action& action) {
    auto options = std::make_shared<Options>();
    CLI::App* command = program.add_subcommand("stats", "Phase and head tables of a capture file");
    command->footer("Example: draftscope stats run.dscope --json");
    command->add_option("file", options->file, "capture file")->required();
    command->add_flag("--cut-warmup", options->cut_warmup,
                      "also leave out leading steps that look like warm-up, beside those recorded as such");
    command->add_flag("--json", options->json, "print one JSON document on stdout");
    command->callback([options, &action] { action = [options] { return do_stats(*options); }; });
}

}  // namespace draftscope::cli
