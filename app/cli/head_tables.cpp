#include "app/cli/head_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "app/cli/estimates.h"
#include "app/cli/tables.h"
#include "capture/head_traits.h"
#include "engine/heads/registry.h"
#include "stats/head_costs.h"

namespace draftscope::cli {
namespace {

using nlohmann::json;

std::string percent(const std::optional<double>& value) {
    return value ? fmt::format("{:.1f}", 100 * *value) : std::string("-");
}

/// Returns a number of FLOPs in MFLOP; 0 = unknown.
std::string mega(double flops) {
    return flops > 0 ? fmt::format("{:.1f}", flops / 1e6) : "-";
}

std::string mode_text(const HeadComparison& head) {
    const char* mark = head.path_candidates ? ", path estimate" : head.estimate ? ", estimate" : "";
    return std::string(to_text(head.stats.mode)) + mark;
}

std::string acceptance_table(const std::vector<HeadComparison>& heads) {
    std::vector<std::vector<std::string>> rows;
    for (const HeadComparison& head : heads) {
        const HeadStats& stats = head.stats;
        rows.push_back({stats.head, mode_text(head), fmt::format("{}", stats.rounds),
                        stats.tau > 0 ? fmt::format("{:.3f}", stats.tau) : "-", percent(stats.coverage),
                        percent(stats.covered_mass), size_text(stats.row_tokens, stats.active_rows),
                        stats.bytes_per_call > 0 ? fmt::format("{:.0f}", stats.bytes_per_call / 1e3) : "-",
                        mega(stats.flops_per_round), fmt::format("{:.0f}", stats.head_ns_per_round / 1e3)});
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
        (path ? fmt::format("path estimate: {}\n", tree_candidates_note) : std::string()) +
        (compared->no_interval.empty() ? interval_text(compared->cost.conversations) : compared->no_interval);
    return fmt::format("\n{}reference: {}\n{}\n", format_table(header, rows), reference_text(heads.front()),
                       note);
}

std::string bytes_table(const std::vector<HeadComparison>& heads) {
    std::vector<std::vector<std::string>> rows;
    for (const HeadComparison& head : heads) {
        if (!head.bytes) continue;
        const HeadBytes& bytes = *head.bytes;
        rows.push_back({head.stats.head, mode_text(head),
                        fmt::format("{:.0f}", head.stats.bytes_per_round / 1e3),
                        mega(head.stats.flops_per_round), fmt::format("{:.1f}", bytes.per_second / 1e9),
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
                        fmt::format("{:.0f}", reads.gathered / 1e3), mega(reads.flops),
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
    return {{"streamed_bytes_per_round", reads.streamed},
            {"gathered_bytes_per_round", reads.gathered},
            {"flops_per_round", reads.flops},
            {"probed_ns", or_null(reads.explained_ns)},
            {"times_probed", reads.explained_ns ? json(reads.times()) : json(nullptr)},
            {"constant_probed_ns", reads.explained_ns ? json(reads.constant_ns()) : json(nullptr)}};
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
    json out = json::array();
    for (const HeadComparison& head : head_costs(snapshot, run_id)) {
        const HeadStats& stats = head.stats;
        const AcceptanceCost& cost = head.cost;
        out.push_back(
            {{"head", stats.head},
             {"mode", to_text(stats.mode)},
             {"rounds", stats.rounds},
             {"tau", stats.tau > 0 ? json(stats.tau) : json(nullptr)},
             {"tau_unclipped", stats.tau > 0 ? json(stats.tau_unclipped) : json(nullptr)},
             {"rho_tau", value_json(cost.rho_tau)},
             {"nu", value_json(cost.nu)},
             {"kappa", value_json(cost.kappa)},
             {"predicted_speedup", value_json(cost.predicted)},
             {"measured_speedup", value_json(cost.measured)},
             {"unexplained", value_json(cost.unexplained)},
             {"break_even_rho_tau", or_null(cost.break_even_rho_tau)},
             {"break_even_nu", or_null(cost.break_even_nu)},
             {"reference",
              head.reference == FullReference::none ? json(nullptr) : json(to_text(head.reference))},
             {"estimate", head.estimate},
             {"path_candidates", head.path_candidates},
             {"intervals", intervals_json(cost)},
             {"interval_unit", cost.rho_tau && cost.rho_tau->interval ? json("conversation") : json(nullptr)},
             {"conversations", cost.conversations},
             {"no_interval", or_null(head.no_interval)},
             {"active_rows", stats.active_rows},
             {"row_tokens", or_null(stats.row_tokens)},
             {"bytes_per_call", stats.bytes_per_call > 0 ? json(stats.bytes_per_call) : json(nullptr)},
             {"head_ns_per_round", stats.head_ns_per_round},
             {"bytes_per_round", stats.bytes_per_round},
             {"flops_per_round", stats.flops_per_round},
             {"bytes_per_second", head.bytes ? json(head.bytes->per_second) : json(nullptr)},
             {"nu_by_bytes", head.bytes ? json(head.bytes->explained) : json(nullptr)},
             {"times_bytes", head.bytes ? json(head.bytes->times) : json(nullptr)},
             {"constant_ns", head.bytes ? json(head.bytes->constant_ns) : json(nullptr)},
             {"coverage", or_null(stats.coverage)},
             {"covered_mass", or_null(stats.covered_mass)}});
        out.back().update(reads_json(head.reads));
    }
    return out;
}

namespace {

constexpr std::size_t width = 96;

/// Wraps `text` into indented lines.
std::string wrap_text(std::string_view text, std::size_t indent) {
    std::string out;
    while (!text.empty()) {
        std::size_t end = text.size();
        if (indent + end > width) {
            end = text.rfind(' ', width - indent);
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
