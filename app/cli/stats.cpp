#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <map>
#include <memory>

#include "app/cli/cli.h"
#include "app/cli/head_tables.h"
#include "app/cli/imported_tables.h"
#include "app/cli/tables.h"
#include "base/fields.h"
#include "base/format_count.h"
#include "capture/quantile.h"
#include "capture/queries.h"
#include "capture/rejections.h"
#include "capture/run_setting.h"
#include "capture/token_text.h"
#include "stats/run_statistics.h"
#include "storage/capture_file.h"

namespace draftscope::cli {
namespace {

using nlohmann::json;

std::string us(double ns) {
    return fmt::format("{:.1f}", ns * 1e-3);
}

std::string range(const std::optional<Interval>& interval, double factor) {
    if (!interval) return "-";
    return fmt::format("{:.1f} .. {:.1f}", interval->low * factor, interval->high * factor);
}

/// Returns a quantile, or the number of samples that it requires.
std::string quantile_text(const std::optional<double>& value, std::size_t min_samples, std::int64_t n) {
    if (value) return us(*value);
    return n == 0 ? "-" : fmt::format("n < {}", min_samples);
}

std::vector<std::string> table_row(std::string name, const Summary& ns, const std::optional<Interval>& median,
                                   const std::string& share, const std::string& share_interval,
                                   const std::string& bandwidth, const std::string& of_probe) {
    const bool some = ns.n > 0;
    return {std::move(name),
            fmt::format("{}", ns.n),
            fmt::format("{:.2f}", ns.total * 1e-6),
            some ? us(ns.mean) : "-",
            some ? us(ns.median) : "-",
            range(median, 1e-3),
            some ? us(ns.mad) : "-",
            quantile_text(ns.p90, min_samples_for_p90, ns.n),
            quantile_text(ns.p99, min_samples_for_p99, ns.n),
            share,
            share_interval,
            bandwidth,
            of_probe};
}

json interval_json(const std::optional<Interval>& interval, double factor) {
    if (!interval) return nullptr;
    return {interval->low * factor, interval->high * factor};
}

json times_json(const Summary& ns, const std::optional<Interval>& median) {
    constexpr auto us = [](std::optional<double> time) { return time ? json(*time * 1e-3) : json(); };
    json out = write_fields(as(us, DS_FIELDS(Summary, mean, median, mad, min, max, p90, p99), "_us"), ns);
    if (ns.n == 0)
        for (json& value : out) value = nullptr;
    out.update(
        {{"n", ns.n}, {"total_ms", ns.total * 1e-6}, {"median_interval_us", interval_json(median, 1e-3)}});
    return out;
}

std::string estimate_text(const char* name, const std::optional<Estimate>& estimate, int digits) {
    if (!estimate) return {};
    std::string out = fmt::format("{} {:.{}f}", name, estimate->value, digits);
    if (estimate->interval)
        out += fmt::format(" ({:.{}f} .. {:.{}f})", estimate->interval->low, digits, estimate->interval->high,
                           digits);
    return out;
}

std::string warmup_text(const RunStatistics& s) {
    if (s.warmup_cut > 0)
        return fmt::format("warm-up: the first {} counted steps were slower than the rest and are excluded\n",
                           s.warmup_cut);
    if (s.warmup_found > 0)
        return fmt::format(
            "warm-up: the first {} counted steps are slower than the rest; --cut-warmup excludes them\n",
            s.warmup_found);
    return {};
}

/// Returns the table of phases with location, spread, quantiles and intervals, and a line about the
/// resampling. `probe` is the bandwidth measured on the run's machine, in GB/s.
std::string statistics_text(const RunStatistics& s, const std::optional<double>& probe) {
    std::vector<std::vector<std::string>> rows = {
        table_row("step", s.step_ns, s.step_interval, "100.0", "", "", "")};
    for (const PhaseStatistics& phase : s.phases)
        rows.push_back(table_row(phase_name(phase.phase_id), phase.ns, phase.median_interval,
                                 fmt::format("{:.1f}", 100 * phase.share), range(phase.share_interval, 100),
                                 bandwidth_text(phase.gb_per_s), probe_share_text(phase.gb_per_s, probe)));
    std::string out = format_table({"phase", "n", "total ms", "mean us", "median us", "95 %", "MAD us",
                                    "p90 us", "p99 us", "share %", "95 %", "GB/s", "% of probe"},
                                   rows);
    const std::string tau = estimate_text("tau", s.tau, 3);
    const std::string speed = estimate_text("tok/s", s.tokens_per_second, 1);
    if (!tau.empty()) out += tau + " over all rounds" + (speed.empty() ? "" : "   ");
    if (!speed.empty()) out += speed + " over these steps";
    if (!tau.empty() || !speed.empty()) out += "\n";
    out += interval_text(s.conversations) + "\n";
    return out + warmup_text(s);
}

/// Times are in microseconds, intervals [low, high] or null.
json statistics_json(const RunStatistics& s) {
    json phases = json::array();
    for (const PhaseStatistics& phase : s.phases) {
        json row = times_json(phase.ns, phase.median_interval);
        row.update(write_fields(DS_FIELDS(PhaseStatistics, share, share_interval, gb_per_s), phase));
        row["name"] = phase_name(phase.phase_id);
        row["exposed_ms"] = phase.exposed_ns * 1e-6;
        phases.push_back(std::move(row));
    }
    json out = write_fields(join(field("units", &RunStatistics::conversations),
                                 DS_FIELDS(RunStatistics, warmup_found, warmup_cut),
                                 as(estimate_json, DS_FIELDS(RunStatistics, tau, tokens_per_second))),
                            s);
    out.update({{"unit", "conversation"},
                {"no_interval", or_null(no_interval_text(s.conversations))},
                {"resamples", bootstrap_resamples},
                {"seed", BootstrapOptions{}.seed},
                {"step", times_json(s.step_ns, s.step_interval)},
                {"phases", phases}});
    return out;
}

/// Tokens of the list of missed ones; our default.
constexpr std::size_t shown_missed = 20;

json stops_json(const StopCounts& counts) {
    json out = {{"label", counts.label}, {"rounds", counts.all()}};
    for (int s = 0; s < round_stops; ++s) out[std::string(to_text(RoundStop{s}))] = counts.rounds[s];
    return out;
}

json rejections_json(const Snapshot& snapshot, RowId run_id) {
    const RejectionSummary found = summarise_rejections(snapshot, run_id);
    json out = {{"all", stops_json(found.all)}, {"left_out", found.left_out}, {"missed", json::array()}};
    for (const auto& [key, lists] : {std::pair{"by_depth", &found.by_depth},
                                     {"by_category", &found.by_category},
                                     {"by_position", &found.by_position}})
        for (const StopCounts& one : *lists) out[key].push_back(stops_json(one));
    for (std::size_t m = 0; m < std::min(found.missed.size(), shown_missed); ++m) {
        const MissedToken& token = found.missed[m];
        out["missed"].push_back({{"token_id", token.token_id},
                                 {"text", token_label(snapshot, snapshot.run(run_id), token.token_id)},
                                 {"rounds", token.rounds},
                                 {"outside_set", token.outside_set},
                                 {"pruned", token.pruned}});
    }
    return out;
}

/// Returns why rounds ended, by depth and category, and the most missed tokens; "" without trees.
std::string rejections_text(const Snapshot& snapshot, RowId run_id) {
    const RejectionSummary found = summarise_rejections(snapshot, run_id);
    // Plain decoding drafts nothing.
    if (found.all.all() == found.all.rounds[static_cast<std::size_t>(RoundStop::nothing_drafted)]) return {};
    std::vector<std::string> header = {"rounds ended, %", "rounds"};
    std::vector<std::size_t> stops;  // that occurred
    for (std::size_t s = 0; s < round_stops; ++s)
        if (found.all.rounds[s] > 0) stops.push_back(s);
    for (const std::size_t s : stops) header.emplace_back(to_text(RoundStop{static_cast<int>(s)}));
    std::vector<std::vector<std::string>> rows;
    const auto add = [&](const std::string& name, const StopCounts& counts) {
        rows.push_back({name, std::to_string(counts.all())});
        for (const std::size_t s : stops)
            rows.back().push_back(
                counts.rounds[s] == 0
                    ? "-"
                    : fmt::format("{:.1f}", 100 * counts.share(RoundStop{static_cast<int>(s)})));
    };
    add("all", found.all);
    for (const StopCounts& one : found.by_depth) add("at depth " + one.label, one);
    if (found.by_category.size() > 1)
        for (const StopCounts& one : found.by_category) add(one.label, one);
    std::string out = format_table(header, rows);
    if (found.left_out > 0) out += format_count(found.left_out, "round") + " without a known tree left out\n";
    std::vector<std::string> missed;
    constexpr std::size_t in_a_line = 8;
    for (std::size_t m = 0; m < std::min(found.missed.size(), in_a_line); ++m)
        missed.push_back(fmt::format("{} {}",
                                     token_label(snapshot, snapshot.run(run_id), found.missed[m].token_id),
                                     found.missed[m].rounds));
    if (!missed.empty()) out += fmt::format("most missed: {}\n", fmt::join(missed, ", "));
    return out + "\n";
}

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
    json out = write_fields(DS_FIELDS(RunRow, id, name, started_utc, target, drafter, head, tree, verify,
                                      tier, synthetic, acceptance),
                            run);
    out.update(run_figures_json(snapshot, run.id));
    if (run.acceptance == imported_acceptance) out["import"] = imported_json(snapshot, run);
    out.update({{"ended", run.ended == RunEnd::live ? json(nullptr) : json(to_text(run.ended))},
                {"lossless", losslessness(run)},
                {"is_baseline", is_baseline(run)},
                {"statistics", statistics_json(run_statistics(snapshot, run.id, cut_warmup))},
                {"rejections", rejections_json(snapshot, run.id)},
                {"notes", notes_json(snapshot, run.id)}});
    if (run.acceptance == imported_acceptance && out["totals"]["rounds"] == 0)  // the file has sums
        for (const char* key : {"drafted", "accepted", "committed"}) out["totals"][key] = nullptr;
    if (run.acceptance == imported_acceptance && !has_phases(snapshot, run.id))
        out["phases"] = out["statistics"]["phases"] = json::array();
    return out;
}

void print_run(const Snapshot& snapshot, const RunRow& run, bool cut_warmup) {
    if (run.acceptance == imported_acceptance) {
        print("{}{}", imported_text(snapshot, run), position_text(snapshot, run.id));
        if (has_phases(snapshot, run.id))
            print("\n{}", statistics_text(run_statistics(snapshot, run.id, cut_warmup), std::nullopt));
        print_losses(snapshot, run.id);
        for (const json& note : notes_json(snapshot, run.id)) print("note: {}\n", note.get<std::string>());
        return print("\n");
    }
    const RunTotals totals = run_totals(snapshot, run.id);
    const std::string ended = run.ended == RunEnd::live ? "unfinished" : std::string(to_text(run.ended));
    print("run {}  {}  {}{}{}{}\n", run.id, run.started_utc, ended,
          is_baseline(run) ? "  autoregressive baseline" : "", run.synthetic ? "  SYNTHETIC WEIGHTS" : "",
          run.acceptance == "real" ? "" : "  simulated acceptance");
    print("{}", setup_text(run));
    print("{}", verify_text(run));
    print("{}", finding_text(snapshot, run.id));
    print("tau {:.3f}  ({} committed in {} rounds; {:.3f} unclipped)   {} tok/s decode\n{}{}\n{}", totals.tau,
          totals.committed, totals.rounds, totals.tau_unclipped, positive(totals.tokens_per_second, 1),
          latency_text(latency(snapshot, run.id)), speedup_text(snapshot, run.id),
          statistics_text(run_statistics(snapshot, run.id, cut_warmup), probed_gb_per_s(run)));
    print("{}", position_text(snapshot, run.id));
    print("{}", rejections_text(snapshot, run.id));
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

    const std::string& name() const { return runs.front()->name; }
    const std::string& tree() const { return runs.front()->tree; }
    std::int64_t rounds() const { return sum.rounds; }
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
    const auto each = [](auto member) {
        return [=](const Pooled& pooled) {
            json out = json::array();
            for (const RunRow* run : pooled.runs) out.push_back(run->*member);
            return out;
        };
    };
    return list_of(join(field("runs", each(&RunRow::id)), field("seeds", each(&RunRow::seed)),
                        DS_FIELDS(Pooled, name, tree, rounds, tau),
                        null_if_none(DS_FIELDS(Pooled, tokens_per_second))))(pooled_settings(snapshot));
}

void print_pooled(const Snapshot& snapshot) {
    std::vector<std::vector<std::string>> rows;
    for (const Pooled& pooled : pooled_settings(snapshot)) {
        std::vector<RowId> runs;
        for (const RunRow* run : pooled.runs) runs.push_back(run->id);
        rows.push_back({pooled.name(), pooled.tree(), fmt::format("{}", fmt::join(runs, ", ")),
                        std::to_string(pooled.rounds()), fmt::format("{:.3f}", pooled.tau()),
                        positive(pooled.tokens_per_second(), 1)});
    }
    if (rows.empty()) return;
    print("{}\n",
          format_table({"runs of one setting, pooled", "tree", "runs", "rounds", "tau", "tok/s"}, rows));
}

Result<int> do_stats(const StatsArguments& options) {
    DS_ASSIGN(const auto loaded, load_capture(options.file));
    const Snapshot& snapshot = *loaded;
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
