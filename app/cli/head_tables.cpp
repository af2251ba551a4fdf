#include "app/cli/head_tables.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "app/cli/tables.h"
#include "capture/head_traits.h"
#include "engine/heads/registry.h"

namespace draftscope::cli {
namespace {

using nlohmann::json;

std::string percent(const std::optional<double>& value) {
    return value ? fmt::format("{:.1f}", 100 * *value) : std::string("-");
}

std::string mode_text(const HeadComparison& head) {
    const char* mark = head.path_candidates ? ", path estimate" : head.estimate ? ", estimate" : "";
    return std::string(to_text(head.stats.mode)) + mark;
}

std::string acceptance_table(const std::vector<HeadComparison>& heads) {
    std::vector<std::vector<std::string>> rows;
    for (const HeadComparison& head : heads) {
        const HeadStats& stats = head.stats;
        rows.push_back({stats.head, mode_text(head), fmt::format("{}", stats.rounds), positive(stats.tau, 3),
                        percent(stats.coverage), percent(stats.covered_mass),
                        size_text(stats.row_tokens, stats.active_rows),
                        positive(stats.bytes_per_call / 1e3, 0), positive(stats.flops_per_round / 1e6, 1),
                        fmt::format("{:.0f}", stats.head_ns_per_round / 1e3)});
    }
    const bool calibrated = std::ranges::any_of(
        heads, [](const HeadComparison& head) { return head.stats.mode == HeadMode::calibration; });
    return format_table({"head", "mode", "rounds", "tau", "coverage %", "covered mass %", "rows", "kB/call",
                         "MFLOP/round", "T_head us"},
                        rows) +
           (calibrated ? "calibration: a few rounds of each text, so no tau\n" : "") +
           size_note(std::ranges::any_of(heads, [](const HeadComparison& head) {
               return has_own_shortlists(head.stats.row_tokens, head.stats.active_rows);
           }));
}

std::string reference_text(const HeadComparison& head) {
    switch (head.reference) {
        case FullReference::drive:
            return "full drove this run";
        case FullReference::selfpaced:
            return "full as a shadow head over the same text";
        case FullReference::other_run:
            return "full in another run on the same prompts";
        case FullReference::aligned:
            return "full drafting in some rounds of this head: estimates";
        case FullReference::calibration:
            return "full drafting in calibration rounds of this head: estimates";
        case FullReference::none:
            break;
    }
    return "no full head to compare with";
}

std::string cost_table(const std::vector<HeadComparison>& heads) {
    std::vector<std::vector<std::string>> rows;
    const HeadComparison* compared = nullptr;
    bool measured = false;
    for (const HeadComparison& head : heads) {
        const AcceptanceCost& cost = head.cost;
        if ((!cost.rho_tau && !cost.nu) || is_full_head(head.stats.head)) continue;
        if (compared == nullptr || head.cost.conversations > compared->cost.conversations) compared = &head;
        measured = measured || cost.measured;
        rows.push_back({head.stats.head, mode_text(head), with_interval(cost.rho_tau), with_interval(cost.nu),
                        with_interval(cost.kappa), with_interval(cost.predicted),
                        number(cost.break_even_rho_tau, 3), with_interval(cost.measured),
                        difference(cost.unexplained)});
    }
    if (rows.empty()) return {};
    std::vector<std::string> header = {
        "against full",       "mode",       "rho_tau",    "nu", "kappa", "predicted x",
        "break-even rho_tau", "measured x", "unexplained"};
    if (!measured) {
        header.resize(header.size() - 2);
        for (auto& row : rows) row.resize(header.size());
    }
    const bool path = std::ranges::any_of(heads, &HeadComparison::path_candidates);
    const std::string note =
        (path ? fmt::format("path estimate: {}\n", replay_estimate_note) : std::string()) +
        (compared->no_interval.empty() ? interval_text(compared->cost.conversations) : compared->no_interval);
    return fmt::format("\n{}reference: {}\n{}\n", format_table(header, rows), reference_text(heads.front()),
                       note);
}

std::string bytes_table(const std::vector<HeadComparison>& heads) {
    std::vector<std::vector<std::string>> rows;
    for (const HeadComparison& head : heads) {
        if (!head.bytes) continue;
        const HeadBytes& bytes = *head.bytes;
        rows.push_back(
            {head.stats.head, mode_text(head), fmt::format("{:.0f}", head.stats.bytes_per_round / 1e3),
             positive(head.stats.flops_per_round / 1e6, 1), fmt::format("{:.1f}", bytes.per_second / 1e9),
             fmt::format("{:.3f}", bytes.explained), fmt::format("{:.2f}", bytes.times),
             bytes.constant_ns >= 0 ? fmt::format("{:.0f}", bytes.constant_ns / 1e3) : "-"});
    }
    if (rows.size() < 2) return {};
    return fmt::format(
        "\n{}nu by bytes: nu if time were proportional to the bytes read; nu / that: cost per byte relative "
        "to the full head; fixed us: the rest of T_head, for routing, selection and calls\n",
        format_table({"per round", "mode", "kB", "MFLOP", "GB/s", "nu by bytes", "nu / that", "fixed us"},
                     rows));
}

constexpr std::size_t help_columns = 96;

/// Wraps `text` into indented lines.
std::string wrap_text(std::string_view text, std::size_t indent) {
    std::string out;
    while (!text.empty()) {
        std::size_t end = text.size();
        if (indent + end > help_columns) {
            end = text.rfind(' ', help_columns - indent);
            if (end == std::string_view::npos || end == 0) end = text.size();
        }
        out += std::string(indent, ' ') + std::string(text.substr(0, end)) + '\n';
        text.remove_prefix(std::min(text.size(), end + 1));
    }
    return out;
}

std::string value_text(const HeadParam& param) {
    if (!param.choices.empty()) return fmt::format("{}={}", param.name, param.choices);
    if (param.default_value == 0 && param.min > 0) return fmt::format("{}=", param.name);
    return fmt::format("{}={}", param.name, param.default_value);
}

}  // namespace

std::string size_text(std::optional<double> row_tokens, double active_rows) {
    return has_own_shortlists(row_tokens, active_rows)
               ? fmt::format("{:.0f} (reads {:.0f})", *row_tokens, active_rows)
               : fmt::format("{:.0f}", active_rows);
}

std::string size_note(bool own_shortlists) {
    return own_shortlists ? "rows: tokens of one row's shortlist, and what a call reads for all its rows; "
                            "coverage and mass are of the union over a level's rows\n"
                          : "";
}

std::string reads_table(std::string first, std::span<const NamedReads> heads) {
    if (heads.empty()) return {};
    bool probed = false, under_load = false;
    std::vector<std::vector<std::string>> rows;
    for (const auto& [name, reads] : heads) {
        rows.push_back({name, fmt::format("{:.0f}", reads.streamed / 1e3),
                        fmt::format("{:.0f}", reads.gathered / 1e3), positive(reads.flops / 1e6, 1),
                        fmt::format("{:.0f}", reads.head_ns / 1e3), "-", "-", "-"});
        if (!reads.explained_ns) continue;
        probed = true;
        std::vector<std::string>& row = rows.back();
        if (1 / reads.times() > max_credible_probe_ratio) {
            under_load = true;
            for (std::size_t c = 5; c < row.size(); ++c) row[c] = "void";
            continue;
        }
        row[5] = fmt::format("{:.0f}", *reads.explained_ns / 1e3);
        row[6] = fmt::format("{:.2f}", reads.times());
        row[7] = fmt::format("{:.0f}", std::max(0.0, reads.constant_ns() / 1e3));
    }
    std::vector<std::string> header = {std::move(first), "kB streamed", "kB gathered", "MFLOP", "T_head us"};
    if (probed) {
        header.insert(header.end(), {"reading us", "T_head / that", "fixed us"});
    } else {
        for (auto& row : rows) row.resize(header.size());
    }
    return fmt::format("\n{}{}\n{}", format_table(header, rows),
                       probed ? "reading: time of those bytes at the rates that doctor measured, beyond the "
                                "caches; fixed: the rest of T_head"
                              : "draftscope doctor --threads N, with the N of this run, measures how much of "
                                "T_head is the reading of these bytes",
                       under_load ? void_probe_text() : "");
}

json reads_json(const HeadTraffic& reads) {
    const auto if_explained = [](double (HeadTraffic::*value)() const) {
        return [=](const HeadTraffic& one) { return one.explained_ns ? json((one.*value)()) : json(); };
    };
    return write_fields(
        join(field("streamed_bytes_per_round", &HeadTraffic::streamed),
             field("gathered_bytes_per_round", &HeadTraffic::gathered),
             field("flops_per_round", &HeadTraffic::flops), field("probed_ns", &HeadTraffic::explained_ns),
             field("times_probed", if_explained(&HeadTraffic::times)),
             field("constant_probed_ns", if_explained(&HeadTraffic::constant_ns))),
        reads);
}

std::string head_table_text(const Snapshot& snapshot, RowId run_id) {
    const std::vector<HeadComparison> heads = head_costs(snapshot, run_id);
    if (heads.empty()) return {};
    std::vector<NamedReads> reads;
    for (const HeadComparison& head : heads) {
        if (head.reads.head_ns <= 0 || head.stats.bytes_per_round <= 0) continue;
        reads.push_back({fmt::format("{}, {}", head.stats.head, to_text(head.stats.mode)), head.reads});
    }
    return acceptance_table(heads) + cost_table(heads) + bytes_table(heads) +
           reads_table("a round's reads", reads);
}

std::string head_summary_text(const Snapshot& snapshot, RowId run_id) {
    const std::vector<HeadComparison> heads = head_costs(snapshot, run_id);
    return heads.empty() ? std::string() : acceptance_table(heads) + cost_table(heads);
}

json heads_json(const Snapshot& snapshot, RowId run_id) {
    constexpr auto stats_fields =
        join(DS_FIELDS(HeadStats, head, mode, rounds, active_rows, row_tokens, head_ns_per_round,
                       bytes_per_round, flops_per_round, coverage, covered_mass),
             null_if_none(DS_FIELDS(HeadStats, tau, bytes_per_call)),
             field("tau_unclipped",
                   [](const HeadStats& one) { return one.tau > 0 ? json(one.tau_unclipped) : json(); }));
    constexpr auto comparison_fields = join(DS_FIELDS(HeadComparison, estimate, path_candidates),
                                            null_if_none(DS_FIELDS(HeadComparison, no_interval)));
    constexpr auto bytes_fields =
        join(field("bytes_per_second", &HeadBytes::per_second), field("nu_by_bytes", &HeadBytes::explained),
             field("times_bytes", &HeadBytes::times), DS_FIELDS(HeadBytes, constant_ns));
    json out = json::array();
    for (const HeadComparison& head : head_costs(snapshot, run_id)) {
        const AcceptanceCost& cost = head.cost;
        json& one = out.emplace_back(write_fields(stats_fields, head.stats));
        one.update(write_fields(comparison_fields, head));
        one.update(write_fields(
            join(cost_fields, DS_FIELDS(AcceptanceCost, break_even_rho_tau, break_even_nu, conversations)),
            cost));
        one.update(write_fields(bytes_fields, head.bytes.value_or(HeadBytes())));
        one.update(reads_json(head.reads));
        if (!head.bytes)
            for (const char* key : {"bytes_per_second", "nu_by_bytes", "times_bytes", "constant_ns"})
                one[key] = nullptr;
        one["reference"] =
            head.reference == FullReference::none ? json(nullptr) : json(to_text(head.reference));
        one["intervals"] = intervals_json(cost);
        one["interval_unit"] = cost.rho_tau && cost.rho_tau->interval ? json("conversation") : json(nullptr);
    }
    return out;
}

std::string head_help() {
    std::string text = "Heads, as --head NAME:key=value,... (of values a|b|c the first is the default):\n";
    for (const HeadInfo& info : head_registry()) {
        text += fmt::format("  {:<12} {}\n", info.id, info.paper);
        if (!info.artefact.empty()) text += wrap_text(fmt::format("needs: {}", info.artefact), 15);
        if (info.replay_only) text += wrap_text("hypothetical: knows the recorded text; only for replay", 15);
        for (const HeadParam& param : info.params)
            text += wrap_text(fmt::format("{}  {}{}", value_text(param), param.help,
                                          param.our_default ? " [our default]" : ""),
                              15);
    }
    const HeadInfo& suffix = rdk_suffix();
    text += fmt::format("  {:<12} {}\n", suffix.name, suffix.paper);
    text += wrap_text(
        "suffix of any spec, with --verify pq: redistributes probability to tokens that the head lacks", 15);
    text += wrap_text(fmt::format("needs: {}", suffix.artefact), 15);
    return text;
}

}  // namespace draftscope::cli
