#include "app/cli/statistics_tables.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "app/cli/estimates.h"
#include "app/cli/tables.h"
#include "capture/quantile.h"

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

json summary_json(const Summary& ns, const std::optional<Interval>& median) {
    constexpr auto us = [](std::optional<double> ns) { return ns ? json(*ns * 1e-3) : json(); };
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

}  // namespace

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

json statistics_json(const RunStatistics& s) {
    json phases = json::array();
    for (const PhaseStatistics& phase : s.phases) {
        json row = summary_json(phase.ns, phase.median_interval);
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
                {"step", summary_json(s.step_ns, s.step_interval)},
                {"phases", phases}});
    return out;
}

}  // namespace draftscope::cli
