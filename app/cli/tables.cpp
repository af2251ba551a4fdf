#include "app/cli/tables.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "app/cli/cli.h"
#include "base/phase_names.h"
#include "base/tier_text.h"
#include "capture/acceptance_by_depth.h"
#include "capture/queries.h"
#include "capture/run_setting.h"

namespace draftscope::cli {

using nlohmann::json;

std::string phase_name(int id) {
    for (const PhaseRow& row : phase_rows) {
        if (row.id == id) return std::string(row.name);
    }
    return fmt::format("phase {}", id);
}

std::string format_table(const std::vector<std::string>& header,
                         const std::vector<std::vector<std::string>>& rows) {
    std::vector<std::size_t> width(header.size());
    for (std::size_t c = 0; c < header.size(); ++c) {
        width[c] = header[c].size();
        for (const auto& row : rows) width[c] = std::max(width[c], row[c].size());
    }
    std::string out;
    const auto add_row = [&](const std::vector<std::string>& row) {
        for (std::size_t c = 0; c < row.size(); ++c) {
            if (c == 0) {
                out += fmt::format("{:<{}}", row[c], width[c]);
            } else {
                out += fmt::format("  {:>{}}", row[c], width[c]);
            }
        }
        out += '\n';
    };
    add_row(header);
    for (const auto& row : rows) add_row(row);
    return out;
}

std::string rate_text(double tokens_per_second) {
    return tokens_per_second > 0 ? fmt::format("{:.1f}", tokens_per_second) : std::string("-");
}

json rate_json(double tokens_per_second) {
    return tokens_per_second > 0 ? json(tokens_per_second) : json(nullptr);
}

std::string bandwidth_text(double gb_per_s) {
    if (gb_per_s <= 0) return "-";
    return gb_per_s < 0.05 ? "< 0.1" : fmt::format("{:.1f}", gb_per_s);
}

std::string probe_share_text(double gb_per_s, const std::optional<double>& probe) {
    if (!probe || *probe <= 0 || gb_per_s <= 0) return "-";
    const double percent = 100.0 * gb_per_s / *probe;
    if (percent > 100 * max_credible_probe_ratio) return "void";
    return percent < 0.5 ? "< 1" : fmt::format("{:.0f}", percent);
}

std::string void_probe_text() {
    return "void: faster than doctor's measurement, so other work used the memory during that measurement; "
           "run draftscope doctor again while nothing else runs\n";
}

std::string phase_table_text(const Snapshot& snapshot, RowId run_id) {
    const RunRow* run = snapshot.run(run_id);
    const std::optional<double> probe = run != nullptr ? probed_gb_per_s(*run) : std::nullopt;
    std::vector<std::vector<std::string>> rows;
    for (const PhaseStats& stats : phase_stats(snapshot, run_id)) {
        rows.push_back({phase_name(stats.phase_id), fmt::format("{}", stats.count),
                        fmt::format("{:.2f}", milliseconds(stats.total_ns)),
                        fmt::format("{:.2f}", milliseconds(stats.exposed_ns)),
                        stats.count > 0 ? fmt::format("{:.1f}", stats.median_ns * 1e-3) : std::string("-"),
                        stats.p90_ns      ? fmt::format("{:.1f}", *stats.p90_ns * 1e-3)
                        : stats.count > 0 ? std::string("n too small")
                                          : std::string("-"),
                        fmt::format("{:.1f}", 100.0 * stats.share), bandwidth_text(stats.gb_per_s),
                        probe_share_text(stats.gb_per_s, probe)});
    }
    const bool under_load =
        std::any_of(rows.begin(), rows.end(), [](const auto& row) { return row.back() == "void"; });
    return format_table({"phase", "n", "total ms", "exposed ms", "median us", "p90 us", "share %", "GB/s",
                         "% of probe"},
                        rows) +
           (under_load ? void_probe_text() : "");
}

std::string phase_summary_text(const Snapshot& snapshot, RowId run_id) {
    constexpr double smallest_share = 0.005;
    std::vector<PhaseStats> phases = phase_stats(snapshot, run_id);
    std::erase_if(phases, [](const PhaseStats& one) { return one.count == 0 || one.share < smallest_share; });
    std::ranges::stable_sort(phases, std::greater(), &PhaseStats::share);
    std::vector<std::string> parts;
    for (const PhaseStats& one : phases)
        parts.push_back(fmt::format("{} {:.0f} % ({:.2f} ms)", phase_name(one.phase_id), 100 * one.share,
                                    one.median_ns * 1e-6));
    return parts.empty() ? std::string() : fmt::format("time of a step: {}\n", fmt::join(parts, ", "));
}

std::string excluded_text(const Snapshot& snapshot, RowId run_id) {
    const RunTotals totals = run_totals(snapshot, run_id);
    std::vector<std::string> parts;
    if (totals.excluded_warmup > 0) parts.push_back(fmt::format("{} warm-up", totals.excluded_warmup));
    if (totals.excluded_paused > 0) parts.push_back(fmt::format("{} paused", totals.excluded_paused));
    if (totals.excluded_shadow > 0)
        parts.push_back(fmt::format("{} timed with a second draft", totals.excluded_shadow));
    if (parts.empty()) return {};
    return fmt::format("{} steps excluded from times and speeds ({} in all)", fmt::join(parts, ", "),
                       totals.steps);
}

std::string setup_text(const RunRow& run) {
    return fmt::format("{}  drafter {}  head {}  tree {}  {}  {} threads  {}\n", run.target, run.drafter,
                       run.head.empty() ? "-" : run.head, run.tree, run.precision, run.threads,
                       tier_text(run.tier));
}

void print_losses(const Snapshot& snapshot, RowId run_id) {
    for (const LossRow& loss : snapshot.losses)
        if (loss.run_id == run_id) print("lost: {} {}\n", loss.count, loss.kind);
}

std::string verify_text(const RunRow& run) {
    if (run.acceptance != "real")
        return "SIMULATED ACCEPTANCE: drafts were not verified by the target; the text means nothing\n";
    if (losslessness(run) == "lossy")
        return fmt::format("verify {}: LOSSY, the text is not the target's own\n", run.verify);
    if (losslessness(run) == "distribution")
        return fmt::format("verify {}: lossless in distribution, not token for token\n", run.verify);
    return {};
}

json phases_json(const Snapshot& snapshot, RowId run_id) {
    const RunRow* run = snapshot.run(run_id);
    const std::optional<double> probe = run != nullptr ? probed_gb_per_s(*run) : std::nullopt;
    json out = json::array();
    for (const PhaseStats& stats : phase_stats(snapshot, run_id)) {
        out.push_back({{"name", phase_name(stats.phase_id)},
                       {"count", stats.count},
                       {"total_ms", milliseconds(stats.total_ns)},
                       {"exposed_ms", milliseconds(stats.exposed_ns)},
                       {"median_us", stats.count > 0 ? json(stats.median_ns * 1e-3) : json(nullptr)},
                       {"p90_us", stats.p90_ns ? json(*stats.p90_ns * 1e-3) : json(nullptr)},
                       {"share", stats.share},
                       {"gb_per_s", stats.gb_per_s},
                       {"of_probe", probe ? json(stats.gb_per_s / *probe) : json(nullptr)}});
    }
    return out;
}

json losses_json(const Snapshot& snapshot, RowId run_id) {
    std::map<std::string, std::int64_t> by_kind;
    for (const LossRow& loss : snapshot.losses) {
        if (loss.run_id == run_id) by_kind[loss.kind] += loss.count;
    }
    json out = json::array();
    for (const auto& [kind, count] : by_kind) out.push_back({{"kind", kind}, {"count", count}});
    return out;
}

void print_document(const json& document) {
    print("{}\n", document.dump(2, ' ', false, json::error_handler_t::replace));
}

json totals_json(const Snapshot& snapshot, RowId run_id) {
    const RunTotals totals = run_totals(snapshot, run_id);
    std::vector<DepthAcceptance> depths;
    std::vector<std::int64_t> histogram;
    for (std::size_t r = 0; r < snapshot.rounds.size(); ++r) {
        const RoundRow& round = snapshot.rounds[r].row;
        if (round.run_id != run_id) continue;
        add_round(depths, round.tree_depth, round.accepted, round.clipped);
        histogram.resize(std::max<std::size_t>(histogram.size(), round.accepted + 1));
        ++histogram[round.accepted];
    }
    json per_depth = json::array();
    for (const DepthAcceptance& depth : depths) per_depth.push_back(depth.rate());
    return {{"rounds", totals.rounds},
            {"histogram", histogram},
            {"per_depth", std::move(per_depth)},
            {"drafted", totals.drafted},
            {"accepted", totals.accepted},
            {"committed", totals.committed},
            {"tau", totals.rounds > 0 ? json(totals.tau) : json(nullptr)},
            {"tau_unclipped", totals.rounds > 0 ? json(totals.tau_unclipped) : json(nullptr)},
            {"generated", totals.generated},
            {"decode_seconds", seconds(totals.decode_ns)},
            {"prefill_seconds", seconds(totals.prefill_ns)},
            {"tokens_per_second", rate_json(totals.tokens_per_second)},
            {"tokens_per_second_e2e", rate_json(totals.tokens_per_second_e2e)}};
}

}  // namespace draftscope::cli
