#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "app/cli/cli.h"
#include "app/cli/finding.h"
#include "app/cli/head_tables.h"
#include "app/cli/latency_tables.h"
#include "app/cli/speedup_text.h"
#include "app/cli/statistics_tables.h"
#include "app/cli/tables.h"
#include "base/phase_names.h"
#include "capture/queries.h"
#include "capture/run_setting.h"
#include "storage/capture_file.h"

namespace draftscope::cli {
namespace {

using nlohmann::json;

struct StatsArguments {
    std::string file;
    bool json = false;
    bool cut_warmup = false;
};

/// The notes of a run's files, without those of rounds.
json notes_json(const Snapshot& snapshot, RowId run_id) {
    json out = json::array();
    for (const NoteRow& note : snapshot.notes)
        if (note.run_id == run_id && note.round_id == 0) out.push_back(note.text);
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
            {"is_baseline", is_baseline(run)},
            {"totals", totals_json(snapshot, run.id)},
            {"baseline", speedup_json(snapshot, run.id)},
            {"latency", latency_json(latency(snapshot, run.id))},
            {"speed", position_json(snapshot, run.id)},
            {"phases", phases_json(snapshot, run.id)},
            {"statistics", statistics_json(run_statistics(snapshot, run.id, cut_warmup))},
            {"heads", heads_json(snapshot, run.id)},
            {"losses", losses_json(snapshot, run.id)},
            {"notes", notes_json(snapshot, run.id)}};
}

void print_run(const Snapshot& snapshot, const RunRow& run, bool cut_warmup) {
    const RunTotals totals = run_totals(snapshot, run.id);
    const std::string ended = run.ended == RunEnd::live ? "unfinished" : std::string(to_text(run.ended));
    print("run {}  {}  {}{}{}{}\n", run.id, run.started_utc, ended,
          is_baseline(run) ? "  autoregressive baseline" : "", run.synthetic ? "  SYNTHETIC WEIGHTS" : "",
          run.acceptance == "real" ? "" : "  simulated acceptance");
    print("{}", setup_text(run));
    print("{}", verify_text(run));
    print("{}", finding_text(snapshot, run.id));
    print("tau {:.3f}  ({} committed in {} rounds; {:.3f} unclipped)   {} tok/s decode\n{}{}\n{}", totals.tau,
          totals.committed, totals.rounds, totals.tau_unclipped, rate_text(totals.tokens_per_second),
          latency_text(latency(snapshot, run.id)), speedup_text(snapshot, run.id),
          statistics_text(run_statistics(snapshot, run.id, cut_warmup), probed_gb_per_s(run)));
    print("{}", position_text(snapshot, run.id));
    const std::string excluded = excluded_text(snapshot, run.id);
    if (!excluded.empty()) print("{}\n", excluded);
    print_losses(snapshot, run.id);
    for (const json& note : notes_json(snapshot, run.id)) print("note: {}\n", note.get<std::string>());
    print("\n{}\n", head_table_text(snapshot, run.id));
}

/// Runs of one setting (seeds, shards), pooled.
struct Pooled {
    std::vector<const RunRow*> runs;
    RunTotals sum;  ///< counts and times only

    double tau() const { return static_cast<double>(sum.committed) / static_cast<double>(sum.rounds); }
    double tokens_per_second() const {
        return sum.counted_ns > 0 ? static_cast<double>(sum.counted_committed) / seconds(sum.counted_ns) : 0;
    }
};

/// Returns settings with several runs, in the order of their first runs.
std::vector<Pooled> pooled_settings(const Snapshot& snapshot) {
    std::vector<Pooled> out;
    std::map<std::string, std::size_t> places;
    for (const RunRow& run : snapshot.runs) {
        const auto [place, is_new] = places.emplace(repeat_setting(run), out.size());
        if (is_new) out.emplace_back();
        Pooled& pooled = out[place->second];
        const RunTotals totals = run_totals(snapshot, run.id);
        pooled.runs.push_back(&run);
        pooled.sum.rounds += totals.rounds;
        pooled.sum.committed += totals.committed;
        pooled.sum.counted_ns += totals.counted_ns;
        pooled.sum.counted_committed += totals.counted_committed;
    }
    std::erase_if(out, [](const Pooled& one) { return one.runs.size() < 2 || one.sum.rounds == 0; });
    return out;
}

json pooled_json(const Snapshot& snapshot) {
    json out = json::array();
    for (const Pooled& pooled : pooled_settings(snapshot)) {
        json runs = json::array(), seeds = json::array();
        for (const RunRow* run : pooled.runs) {
            runs.push_back(run->id);
            seeds.push_back(run->seed);
        }
        out.push_back({{"runs", std::move(runs)},
                       {"seeds", std::move(seeds)},
                       {"name", pooled.runs.front()->name},
                       {"tree", pooled.runs.front()->tree},
                       {"rounds", pooled.sum.rounds},
                       {"tau", pooled.tau()},
                       {"tokens_per_second", rate_json(pooled.tokens_per_second())}});
    }
    return out;
}

void print_pooled(const Snapshot& snapshot) {
    std::vector<std::vector<std::string>> rows;
    for (const Pooled& pooled : pooled_settings(snapshot)) {
        std::vector<RowId> runs;
        for (const RunRow* run : pooled.runs) runs.push_back(run->id);
        rows.push_back({pooled.runs.front()->name, pooled.runs.front()->tree,
                        fmt::format("{}", fmt::join(runs, ", ")), fmt::format("{}", pooled.sum.rounds),
                        fmt::format("{:.3f}", pooled.tau()), rate_text(pooled.tokens_per_second())});
    }
    if (rows.empty()) return;
    print("{}\n",
          format_table({"runs of one setting, pooled", "tree", "runs", "rounds", "tau", "tok/s"}, rows));
}

int do_stats(const StatsArguments& options) {
    auto loaded = load_capture(options.file);
    if (!loaded.ok()) return report(loaded.error());
    const Snapshot& snapshot = **loaded;
    if (options.json) {
        json runs = json::array();
        for (const RunRow& run : snapshot.runs) runs.push_back(run_json(snapshot, run, options.cut_warmup));
        print_document({{"file", options.file}, {"runs", runs}, {"pooled", pooled_json(snapshot)}});
        return 0;
    }
    if (snapshot.runs.empty()) print("{} contains no run\n", options.file);
    for (const RunRow& run : snapshot.runs) print_run(snapshot, run, options.cut_warmup);
    print_pooled(snapshot);
    return 0;
}

}  // namespace

void add_stats(CLI::App& program, Action& action) {
    auto options = std::make_shared<StatsArguments>();
    CLI::App* command = program.add_subcommand("stats", "Print the phase and head tables of a capture file");
    command->footer("Example: draftscope stats run.dscope --json");
    command->add_option("file", options->file, "capture file")->required();
    command->add_flag("--cut-warmup", options->cut_warmup,
                      "also exclude leading steps that look like warm-up, in addition to those recorded as "
                      "warm-up");
    command->add_flag("--json", options->json, "print one JSON document on stdout");
    command->callback([options, &action] { action = [options] { return do_stats(*options); }; });
}

}  // namespace draftscope::cli
