#include "app/cli/latency_tables.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "app/cli/estimates.h"
#include "app/cli/tables.h"

namespace draftscope::cli {
namespace {

using nlohmann::json;

json summary_json(const Summary& ms) {
    const auto of_some = [&](double value) { return ms.n > 0 ? json(value) : json(nullptr); };
    return {{"n", ms.n},
            {"mean_ms", of_some(ms.mean)},
            {"p50_ms", of_some(ms.median)},
            {"p99_ms", or_null(ms.p99)},
            {"max_ms", of_some(ms.max)}};
}

/// Returns "p50 4.2, p99 9.1 ms", or the maximum in place of a p99 of too few samples.
std::string quantiles(const Summary& ms) {
    if (ms.p99) return fmt::format("p50 {:.2f}, p99 {:.2f} ms", ms.median, *ms.p99);
    return fmt::format("p50 {:.2f}, max {:.2f} ms of {}", ms.median, ms.max, ms.n);
}

std::string table(const std::string& first, const std::vector<PositionBin>& bins) {
    if (bins.size() < 2) return {};
    std::vector<std::vector<std::string>> rows;
    for (const PositionBin& bin : bins)
        rows.push_back(
            {to_text(bin), std::to_string(bin.rounds), fmt::format("{:.3f}", bin.tau),
             number(bin.tokens_per_second > 0 ? std::optional(bin.tokens_per_second) : std::nullopt, 1)});
    return "\n" + format_table({first, "rounds", "tau", "tok/s"}, rows);
}

json bins_json(const std::vector<PositionBin>& bins) {
    json out = json::array();
    for (const PositionBin& bin : bins)
        out.push_back(
            {{"from", bin.from},
             {"to", bin.to},
             {"rounds", bin.rounds},
             {"accepted", bin.accepted},
             {"committed", bin.committed},
             {"tau", bin.tau},
             {"tokens_per_second", bin.tokens_per_second > 0 ? json(bin.tokens_per_second) : json(nullptr)}});
    return out;
}

}  // namespace

std::string latency_text(const Latency& latency) {
    if (latency.output_gap_ms.n == 0) return {};
    std::string out;
    if (latency.first_token_ms.n > 0)
        out = fmt::format("time to first token {}; ", quantiles(latency.first_token_ms));
    return out + fmt::format("inter-token {}; an output every {}\n", quantiles(latency.inter_token_ms),
                             quantiles(latency.output_gap_ms));
}

json latency_json(const Latency& latency) {
    return {{"first_token", summary_json(latency.first_token_ms)},
            {"inter_token", summary_json(latency.inter_token_ms)},
            {"output_gap", summary_json(latency.output_gap_ms)}};
}

std::string position_text(const Snapshot& snapshot, RowId run_id) {
    return table("context", speed_by_position(snapshot, run_id, true)) +
           table("position in the text", speed_by_position(snapshot, run_id, false));
}

json position_json(const Snapshot& snapshot, RowId run_id) {
    return {{"by_context", bins_json(speed_by_position(snapshot, run_id, true))},
            {"by_position", bins_json(speed_by_position(snapshot, run_id, false))}};
}

}  // namespace draftscope::cli
