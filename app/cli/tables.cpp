#include "app/cli/tables.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "app/cli/cli.h"
#include "app/cli/head_tables.h"
#include "base/format_count.h"
#include "base/phase_names.h"
#include "base/tier_text.h"
#include "capture/acceptance_by_depth.h"
#include "capture/conversations.h"
#include "capture/head_traits.h"
#include "capture/queries.h"
#include "capture/run_setting.h"
#include "stats/head_costs.h"
#include "stats/speedup.h"

namespace draftscope::cli {

using nlohmann::json;

namespace {

json summary_json(const Summary& ms) {
    json out = write_fields(join(field("mean_ms", &Summary::mean), field("p50_ms", &Summary::median),
                                 field("p99_ms", &Summary::p99), field("max_ms", &Summary::max)),
                            ms);
    if (ms.n == 0)
        for (json& value : out) value = nullptr;
    out["n"] = ms.n;
    return out;
}

/// Returns "p50 4.2, p99 9.1 ms", or the maximum in place of a p99 of too few samples.
std::string quantiles(const Summary& ms) {
    if (ms.p99) return fmt::format("p50 {:.2f}, p99 {:.2f} ms", ms.median, *ms.p99);
    return fmt::format("p50 {:.2f}, max {:.2f} ms of {}", ms.median, ms.max, ms.n);
}

std::string bin_table(const std::string& first, const std::vector<PositionBin>& bins) {
    if (bins.size() < 2) return {};
    std::vector<std::vector<std::string>> rows;
    for (const PositionBin& bin : bins)
        rows.push_back({to_text(bin), std::to_string(bin.rounds), fmt::format("{:.3f}", bin.tau),
                        positive(bin.tokens_per_second, 1)});
    return "\n" + format_table({first, "rounds", "tau", "tok/s"}, rows);
}

constexpr auto bin_fields = join(DS_FIELDS(PositionBin, from, to, rounds, accepted, committed, tau),
                                 null_if_none(DS_FIELDS(PositionBin, tokens_per_second)));

json phases_json(const Snapshot& snapshot, RowId run_id) {
    const RunRow* run = snapshot.run(run_id);
    const std::optional<double> probe = run != nullptr ? probed_gb_per_s(*run) : std::nullopt;
    const auto ms = [](TimeNs ns) { return milliseconds(ns); };
    constexpr auto us = [](std::optional<double> time) { return time ? json(*time * 1e-3) : json(); };
    return list_of(join(
        as(phase_name, field("name", &PhaseStats::phase_id)), DS_FIELDS(PhaseStats, count, share, gb_per_s),
        as(ms, join(field("total_ms", &PhaseStats::total_ns), field("exposed_ms", &PhaseStats::exposed_ns))),
        field("median_us",
              [](const PhaseStats& one) { return one.count > 0 ? json(one.median_ns * 1e-3) : json(); }),
        as(us, field("p90_us", &PhaseStats::p90_ns)), field("of_probe", [=](const PhaseStats& one) {
            return probe ? json(one.gb_per_s / *probe) : json();
        })))(phase_stats(snapshot, run_id));
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

/// Counts the rounds of each drafter of a pair; null for a run with one drafter.
json drafters_json(const Snapshot& snapshot, RowId run_id) {
    json out;
    for (std::size_t r = 0; r < snapshot.rounds.size(); ++r) {
        const RoundRow& round = snapshot.rounds[r].row;
        if (round.run_id != run_id || round.drafter.empty()) continue;
        json& sum = out[round.drafter];
        for (const auto& [key, count] : {std::pair("rounds", 1),
                                         {"drafted", round.draft_tokens},
                                         {"accepted", round.accepted},
                                         {"committed", round.committed}})
            sum[key] = (sum.contains(key) ? sum[key].get<std::int64_t>() : 0) + count;
    }
    return out;
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
    constexpr auto fields =
        join(join(DS_FIELDS(RunTotals, rounds), field("drafted", &RunTotals::draft_tokens),
                  DS_FIELDS(RunTotals, accepted, committed, generated)),
             null_if_none(DS_FIELDS(RunTotals, tokens_per_second, tokens_per_second_e2e, tau, tau_unclipped)),
             as(seconds, join(field("decode_seconds", &RunTotals::decode_ns),
                              field("prefill_seconds", &RunTotals::prefill_ns))));
    json out = write_fields(fields, totals);
    if (totals.unknown_drafts > 0) out["drafted"] = nullptr;
    if (totals.untimed > 0 && totals.decode_ns == 0) out["decode_seconds"] = nullptr;
    out["histogram"] = histogram;
    out["per_depth"] = std::move(per_depth);
    out["drafters"] = drafters_json(snapshot, run_id);
    return out;
}

json position_json(const Snapshot& snapshot, RowId run_id) {
    return {{"by_context", list_of(bin_fields)(speed_by_position(snapshot, run_id, true))},
            {"by_position", list_of(bin_fields)(speed_by_position(snapshot, run_id, false))}};
}

json speedup_json(const Snapshot& snapshot, RowId run_id) {
    const auto speed = compute_speedup(snapshot, run_id);
    json out = write_fields(
        join(field("runs", &Speedup::plain_runs), DS_FIELDS(Speedup, prompts, conversations),
             field("tokens_per_second", &Speedup::plain_tokens_per_second),
             field("run_tokens_per_second", &Speedup::tokens_per_second), field("speedup", &Speedup::ratio),
             as(estimate_interval_json, field("interval", &Speedup::ratio))),
        speed.value_or(Speedup()));
    if (!speed)
        for (auto& value : out)
            if (!value.is_array()) value = nullptr;
    return out;
}

}  // namespace

json run_figures_json(const Snapshot& snapshot, RowId run_id) {
    return {{"totals", totals_json(snapshot, run_id)},
            {"baseline", speedup_json(snapshot, run_id)},
            {"latency", latency_json(latency(snapshot, run_id))},
            {"speed", position_json(snapshot, run_id)},
            {"phases", phases_json(snapshot, run_id)},
            {"heads", heads_json(snapshot, run_id)},
            {"losses", losses_json(snapshot, run_id)}};
}

std::string number(const std::optional<double>& value, int digits) {
    return value ? fmt::format("{:.{}f}", *value, digits) : std::string("-");
}

std::string positive(double value, int digits) {
    return number(value > 0 ? std::optional(value) : std::nullopt, digits);
}

std::string or_dash(const std::string& text) {
    return text.empty() ? "-" : text;
}

std::string temperature_text(double temperature) {
    if (std::isnan(temperature)) return "temperature not known";
    return temperature > 0 ? fmt::format("T={:g}", temperature) : "greedy";
}

std::string with_interval(const std::optional<Estimate>& estimate, int digits) {
    return estimate ? estimate_text(*estimate, digits) : std::string("-");
}

std::string times_text(const Estimate& ratio) {
    const std::string text = fmt::format("{:.2f}x", ratio.value);
    return ratio.interval
               ? fmt::format("{} [{:.2f}, {:.2f}]", text, ratio.interval->low, ratio.interval->high)
               : text;
}

std::string difference(const std::optional<Estimate>& estimate) {
    if (!estimate) return "-";
    if (!estimate->interval) return fmt::format("{:+.3f}", estimate->value);
    return fmt::format("{:+.3f} [{:+.3f}, {:+.3f}]", estimate->value, estimate->interval->low,
                       estimate->interval->high);
}

json or_null(const std::optional<double>& value) {
    return value ? json(*value) : json(nullptr);
}

json or_null(const std::string& text) {
    return text.empty() ? json(nullptr) : json(text);
}

json estimate_json(const std::optional<Estimate>& estimate) {
    if (!estimate) return nullptr;
    return {{"value", estimate->value}, {"interval", estimate_interval_json(estimate)}};
}

json estimate_interval_json(const std::optional<Estimate>& estimate) {
    if (!estimate || !estimate->interval) return nullptr;
    return {estimate->interval->low, estimate->interval->high};
}

json intervals_json(const AcceptanceCost& cost) {
    json out =
        write_fields(as(estimate_interval_json, join(DS_FIELDS(AcceptanceCost, tau), cost_fields)), cost);
    for (auto one = out.begin(); one != out.end();) one = one->is_null() ? out.erase(one) : std::next(one);
    return out;
}

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
    if (totals.untimed > 0) parts.push_back(fmt::format("{} without a time", totals.untimed));
    if (totals.excluded_shadow > 0)
        parts.push_back(fmt::format("{} timed with a second draft", totals.excluded_shadow));
    if (parts.empty()) return {};
    return fmt::format("{} steps excluded from times and speeds ({} in all)", fmt::join(parts, ", "),
                       totals.steps);
}

std::string setup_text(const RunRow& run) {
    return fmt::format("{}  drafter {}  head {}  tree {}  {}  {} threads  {}\n", run.target, run.drafter,
                       or_dash(run.head), run.tree, run.precision, run.threads, tier_text(run.tier));
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

void print_document(const json& document) {
    print("{}\n", document.dump(2, ' ', false, json::error_handler_t::replace));
}

std::string latency_text(const Latency& latency) {
    if (latency.output_gap_ms.n == 0) return {};
    std::string out;
    if (latency.first_token_ms.n > 0)
        out = fmt::format("time to first token {}; ", quantiles(latency.first_token_ms));
    return out + fmt::format("inter-token {}; an output every {}\n", quantiles(latency.inter_token_ms),
                             quantiles(latency.output_gap_ms));
}

json latency_json(const Latency& latency) {
    return write_fields(as(summary_json, join(field("first_token", &Latency::first_token_ms),
                                              field("inter_token", &Latency::inter_token_ms),
                                              field("output_gap", &Latency::output_gap_ms))),
                        latency);
}

std::string position_text(const Snapshot& snapshot, RowId run_id) {
    return bin_table("context", speed_by_position(snapshot, run_id, true)) +
           bin_table("position in the text", speed_by_position(snapshot, run_id, false));
}

std::string speedup_text(const Snapshot& snapshot, RowId run_id) {
    const auto speed = compute_speedup(snapshot, run_id);
    if (!speed) {
        const auto earlier = legacy_baseline(snapshot, run_id);
        if (!earlier) return {};
        return fmt::format(
            "autoregressive decoding reached {:.1f} tok/s over the run's first prompts (one value, stored by "
            "an earlier version): no speed-up over the same prompts can be derived\n",
            *earlier);
    }
    return fmt::format(
        "speed-up {} against autoregressive decoding: {:.1f} and {:.1f} tok/s over the same {} of {}{}\n",
        times_text(speed->ratio), speed->tokens_per_second, speed->plain_tokens_per_second,
        format_count(static_cast<std::int64_t>(speed->prompts), "prompt"),
        format_count(static_cast<std::int64_t>(speed->conversations), "conversation"),
        speed->conversations < speed->conversations_of_run
            ? fmt::format(" (the run has {})", speed->conversations_of_run)
            : std::string());
}

namespace {

std::string setting_text(const RunRow& run) {
    std::string out = run.drafter;
    if (!run.head.empty()) out += " with head " + run.head;
    if (run.tree != "none") out += " and tree " + run.tree;
    return out;
}

std::string conversations_text(std::size_t conversations) {
    return conversations == 1 ? std::string("one conversation")
                              : fmt::format("{} conversations", conversations);
}

/// Returns the confidence of a ratio: "95 % interval 1.20x to 1.42x, 12 conversations".
std::string confidence_text(const Estimate& ratio, std::size_t conversations) {
    if (ratio.interval)
        return fmt::format("95 % interval {:.2f}x to {:.2f}x, {}", ratio.interval->low, ratio.interval->high,
                           conversations_text(conversations));
    return conversations_text(conversations) +
           (conversations == 1 ? ", so no interval" : ", too few for an interval");
}

/// Returns "1.31x as fast as plain decoding", qualified if the interval includes 1.
std::string ratio_text(const Estimate& ratio, const std::string& reference) {
    const std::string plain = fmt::format("{:.2f}x as fast as {}", ratio.value, reference);
    return ratio.interval && ratio.interval->contains(1) ? plain + ", which shows no difference" : plain;
}

const HeadComparison* driving_head(const std::vector<HeadComparison>& heads) {
    for (const HeadComparison& head : heads)
        if (head.stats.mode == HeadMode::drive && !is_full_head(head.stats.head)) return &head;
    return nullptr;
}

/// Compares with the full head: measured if it drove the same prompts, else predicted by the cost model.
std::string head_clause(const Snapshot& snapshot, RowId run_id, std::size_t conversations) {
    const std::vector<HeadComparison> heads = head_costs(snapshot, run_id);
    const HeadComparison* head = driving_head(heads);
    if (head == nullptr || (!head->cost.measured && !head->cost.predicted)) return {};
    const bool measured = head->cost.measured.has_value();
    const Estimate& ratio = measured ? *head->cost.measured : *head->cost.predicted;
    return fmt::format("{}{} ({})", measured ? "" : "by the cost model, ",
                       ratio_text(ratio, "with the full head"), confidence_text(ratio, conversations));
}

/// Returns the line on a comparison with the full head that too few calibration rounds do not give; ""
/// without.
std::string missing_reference(const Snapshot& snapshot, RowId run_id) {
    const std::vector<HeadComparison> heads = head_costs(snapshot, run_id, {.resamples = 0});
    const HeadComparison* head = driving_head(heads);
    if (head == nullptr || head->cost.rho_tau || head->no_interval.empty()) return {};
    return fmt::format("against the full head: {}\n", head->no_interval);
}

std::string main_finding(const Snapshot& snapshot, RowId run_id) {
    const RunRow& run = *snapshot.run(run_id);
    const RunTotals totals = run_totals(snapshot, run_id);
    if (totals.rounds == 0) return {};
    const std::string whose = run.synthetic                  ? "With random weights, "
                              : run.acceptance == "replayed" ? "With simulated acceptance, "
                                                             : "";
    const std::size_t conversations = Conversations(snapshot, run_id).count();
    const std::string head = head_clause(snapshot, run_id, conversations);
    const std::string who = whose + setting_text(run);
    if (const auto plain = compute_speedup(snapshot, run_id)) {
        const std::string reference = plain->conversations > 1 ? "plain decoding"
                                      : plain->conversations_of_run > 1
                                          ? "plain decoding on its first conversation"
                                          : "plain decoding on this prompt";
        const bool slower = plain->ratio.interval && plain->ratio.interval->high < 1;
        return fmt::format("{} decoded {}{} ({}){}{}.\n", who, ratio_text(plain->ratio, reference),
                           slower ? ": drafting cost more than it saved" : "",
                           confidence_text(plain->ratio, plain->conversations), head.empty() ? "" : "; ",
                           head);
    }
    constexpr const char* how = "run --baseline N compares with plain decoding";
    if (!head.empty())
        return fmt::format("{} decoded{} {}; {}.\n", who, head.starts_with("by ") ? "," : "", head, how);
    const std::string over = conversations_text(conversations);
    if (totals.tokens_per_second <= 0)
        return fmt::format("{} decoded too few rounds to time ({}).\n", who, totals.rounds);
    if (run.drafter == plain_drafter)
        return fmt::format("{}plain decoding reached {:.1f} tokens per second over {}.\n", whose,
                           totals.tokens_per_second, over);
    return fmt::format("{} reached {:.1f} tokens per second over {}; {}.\n", who, totals.tokens_per_second,
                       over, how);
}

}  // namespace

std::string finding_text(const Snapshot& snapshot, RowId run_id) {
    const std::string finding = main_finding(snapshot, run_id);
    return finding.empty() ? finding : finding + missing_reference(snapshot, run_id);
}

}  // namespace draftscope::cli
