#include "app/cli/imported_tables.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "app/cli/tables.h"
#include "base/format_count.h"
#include "capture/acceptance_by_depth.h"
#include "capture/queries.h"
#include "capture/run_setting.h"
#include "stats/run_statistics.h"

namespace draftscope::cli {
namespace {

using nlohmann::json;

struct Group {
    std::int64_t rounds = 0, committed = 0;
    double tau() const { return static_cast<double>(committed) / static_cast<double>(rounds); }
};

/// The rounds of a run, counted in one pass.
struct Imported {
    json header;
    RunTotals totals;
    std::map<std::string, double> sums;   ///< of rounds that have no rows, by counter
    std::vector<std::int64_t> histogram;  ///< rounds by accepted drafts
    std::vector<DepthAcceptance> depths;
    std::map<std::string, Group> categories;
    std::map<int, double>
        coverage;  ///< share of the text in the first tokens of the ranking, by their number
    std::vector<std::string> missing;
    std::size_t prompts = 0;
};

/// Counts the text's tokens among the best of the ranking.
void add_coverage(const Snapshot& snapshot, RowId run_id, Imported& out) {
    std::vector<int> ranks;
    std::int64_t tokens = 0;
    for (const TokenRow& token : snapshot.tokens) {
        const PromptRow* prompt = snapshot.prompt(token.prompt_id);
        if (prompt == nullptr || prompt->run_id != run_id || token.source == TokenSource::prefill) continue;
        ++tokens;
        if (token.rank) ranks.push_back(*token.rank);
    }
    if (tokens == 0) out.missing.emplace_back("tokens of the text");
    for (int size = 1024; !ranks.empty() && size <= 65536; size *= 2)
        out.coverage[size] =
            static_cast<double>(std::ranges::count_if(ranks, [&](int rank) { return rank < size; })) /
            static_cast<double>(tokens);
}

Imported count_imported(const Snapshot& snapshot, const RunRow& run) {
    Imported out;
    const json config = json::parse(run.config_json, nullptr, false);
    if (config.is_object()) out.header = config.value(import_key, json());
    out.totals = run_totals(snapshot, run.id);
    std::int64_t no_context = 0, no_tree = 0;
    for (const RoundEntry& entry : snapshot.rounds) {
        const RoundRow& row = entry.row;
        if (row.run_id != run.id) continue;
        out.histogram.resize(std::max<std::size_t>(out.histogram.size(), row.accepted + 1));
        ++out.histogram[row.accepted];
        add_round(out.depths, row.tree_depth, row.accepted, row.clipped);
        no_context += row.context_length < 0 ? 1 : 0;
        no_tree += static_cast<int>(entry.nodes.count) < row.tree_nodes || row.tree_nodes < 0 ? 1 : 0;
        const PromptRow* prompt = snapshot.prompt(row.prompt_id);
        Group& group = out.categories[prompt == nullptr ? "" : prompt->category];
        ++group.rounds;
        group.committed += row.committed;
    }
    for (const CounterRow& counter : snapshot.counters)
        if (counter.run_id == run.id) out.sums[counter.name] += counter.value;
    out.prompts = std::ranges::count_if(snapshot.prompts, [&](const auto& p) { return p->run_id == run.id; });
    const auto miss = [&](std::int64_t rounds, const char* what) {
        if (rounds > 0 && rounds == out.totals.rounds)
            out.missing.emplace_back(what);
        else if (rounds > 0)
            out.missing.push_back(fmt::format("{} of {}", what, format_count(rounds, "round")));
    };
    if (out.totals.rounds == 0) out.missing.emplace_back("single rounds (the file has sums)");
    miss(out.totals.unknown_drafts, "numbers of drafted tokens");
    miss(no_context, "context lengths");
    miss(out.totals.untimed, "times");
    miss(snapshot.stored == nullptr ? no_tree : 0, "draft trees");
    add_coverage(snapshot, run.id, out);
    if (!has_phases(snapshot, run.id)) out.missing.emplace_back("times of phases");
    return out;
}

/// Returns the share of rounds that accepted at least each number of drafts.
std::vector<double> at_least(const Imported& from) {
    std::vector<double> out(from.histogram.size(), 0);
    double reached = 0;
    for (std::size_t i = out.size(); i-- > 0;)
        out[i] =
            (reached += static_cast<double>(from.histogram[i])) / static_cast<double>(from.totals.rounds);
    return out;
}

std::string acceptance_table(const Imported& from) {
    std::vector<std::vector<std::string>> rows;
    const std::vector<double> reached = at_least(from);
    for (std::size_t i = 0; i < reached.size(); ++i) {
        const bool known = i > 0 && i <= from.depths.size() && from.depths[i - 1].reached > 0;
        rows.push_back({std::to_string(i), std::to_string(from.histogram[i]),
                        fmt::format("{:.1f}", 100.0 * static_cast<double>(from.histogram[i]) /
                                                  static_cast<double>(from.totals.rounds)),
                        fmt::format("{:.1f}", 100 * reached[i]),
                        known ? fmt::format("{:.1f}", 100 * from.depths[i - 1].rate()) : "-"});
    }
    return "\n" +
           format_table({"accepted", "rounds", "share %", "at least, %", "of drafts at this depth, %"}, rows);
}

/// Returns "28 of 54 drafted tokens accepted (51.9 %)"; "" if the drafts are not known.
std::string rate_text(double accepted, double drafted) {
    return drafted <= 0 ? std::string()
                        : fmt::format("{:.0f} of {:.0f} drafted tokens accepted ({:.1f} %)", accepted,
                                      drafted, 100 * accepted / drafted);
}

std::string sums_text(const Imported& from) {
    const auto sum = [&](std::string_view name) {
        const auto found = from.sums.find(std::string(name));
        return found == from.sums.end() ? 0.0 : found->second;
    };
    std::string out;
    if (sum(rounds_sum) > 0)
        out = fmt::format("{:.0f} rounds are known as sums only: 1 + accepted / rounds {:.3f}\n",
                          sum(rounds_sum), 1 + sum(accepted_sum) / sum(rounds_sum));
    const bool one_by_one = from.totals.unknown_drafts == 0 && from.totals.rounds > 0;
    const double accepted = sum(accepted_sum) + static_cast<double>(from.totals.accepted);
    const double drafted =
        sum(drafted_sum) + (one_by_one ? static_cast<double>(from.totals.draft_tokens) : 0);
    const std::string rate = rate_text(accepted, drafted);
    return out + rate + (rate.empty() ? "" : "\n");
}

/// Returns the channel through which the engine said it.
std::string source_of(const json& header) {
    const auto source = header.is_object() ? header.find("source") : header.end();
    return source != header.end() && source->is_string() ? source->get<std::string>() : "file";
}

/// Returns from which speed of plain decoding on the drafts do not pay.
std::string break_even_text(const Imported& from) {
    if (from.totals.tokens_per_second <= 0) return {};
    return fmt::format(
        "{:.1f} tok/s decode by the file's times: the drafts pay where a step of plain decoding "
        "takes more than {:.2f} ms\n",
        from.totals.tokens_per_second, 1e3 / from.totals.tokens_per_second);
}

}  // namespace

bool has_phases(const Snapshot& snapshot, RowId run_id) {
    return std::ranges::any_of(snapshot.lanes, [&](const auto& lanes) { return lanes->run_id == run_id; }) &&
           std::ranges::any_of(phase_stats(snapshot, run_id),
                               [](const PhaseStats& one) { return one.count > 0; });
}

std::string imported_text(const Snapshot& snapshot, const RunRow& run) {
    const Imported found = count_imported(snapshot, run);
    std::string out = fmt::format(
        "run {}  imported from {} ({})\ntarget {}  drafter {}  tree {}  verify {}  {}\n", run.id,
        or_unknown(run.name), source_of(found.header), or_unknown(run.target), or_unknown(run.drafter),
        or_unknown(run.tree), run.verify, temperature_text(run.temperature));
    if (found.totals.rounds > 0)
        out += fmt::format("tau {} over {} of {}; 1 + accepted / rounds {:.3f}\n",
                           with_interval(run_statistics(snapshot, run.id).tau, 3),
                           format_count(found.totals.rounds, "round"),
                           format_count(static_cast<std::int64_t>(found.prompts), "request"),
                           found.totals.tau_unclipped);
    out += sums_text(found) + break_even_text(found) + latency_text(latency(snapshot, run.id));
    if (found.totals.rounds > 0) out += acceptance_table(found);
    std::vector<std::vector<std::string>> rows;
    for (const auto& [name, group] : found.categories)
        rows.push_back({or_dash(name), std::to_string(group.rounds), fmt::format("{:.3f}", group.tau())});
    if (rows.size() > 1) out += "\n" + format_table({"category", "rounds", "tau"}, rows);
    for (const auto& [size, share] : found.coverage)
        out += fmt::format("{}{}: {:.1f} %", size == 1024 ? "\nthe text in the ranking's first " : ", ", size,
                           100 * share);
    return out + fmt::format("{}\nnot known: {}\n", found.coverage.empty() ? "" : "\n",
                             fmt::join(found.missing, ", "));
}

json imported_json(const Snapshot& snapshot, const RunRow& run) {
    const Imported found = count_imported(snapshot, run);
    json categories = json::array(), coverage = json::array();
    for (const auto& [name, group] : found.categories)
        categories.push_back({{"category", name}, {"rounds", group.rounds}, {"tau", group.tau()}});
    for (const auto& [size, share] : found.coverage)
        coverage.push_back({{"tokens", size}, {"coverage", share}});
    return {{"header", found.header},   {"at_least", at_least(found)}, {"sums", found.sums},
            {"categories", categories}, {"coverage", coverage},        {"missing", found.missing}};
}

}  // namespace draftscope::cli
