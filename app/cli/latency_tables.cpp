#include "app/cli/latency_tables.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "app/cli/estimates.h"
#include "app/cli/tables.h"

namespace draftscope::cli {
namespace {

using nlohmann::json;

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

std::string table(const std::string& first, const std::vector<PositionBin>& bins) {
    if (bins.size() < 2) return {};
    std::vector<std::vector<std::string>> rows;
    for (const PositionBin& bin : bins)
        rows.push_back(
            {to_text(bin), std::to_string(bin.rounds), fmt::format("{:.3f}", bin.tau),
             number(bin.tokens_per_second > 0 ? std::optional(bin.tokens_per_second) : std::nullopt, 1)});
    return "\n" + format_table({first, "rounds", "tau", "tok/s"}, rows);
}

constexpr auto bin_fields = join(DS_FIELDS(PositionBin, from, to, rounds, accepted, committed, tau),
                                 null_if_none(DS_FIELDS(PositionBin, tokens_per_second)));

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
    return write_fields(as(summary_json, join(field("first_token", &Latency::first_token_ms),
                                              field("inter_token", &Latency::inter_token_ms),
                                              field("output_gap", &Latency::output_gap_ms))),
                        latency);
}

std::string position_text(const Snapshot& snapshot, RowId run_id) {
    return table("context", speed_by_position(snapshot, run_id, true)) +
           table("position in the text", speed_by_position(snapshot, run_id, false));
}

json position_json(const Snapshot& snapshot, RowId run_id) {
    return {{"by_context", list_of(bin_fields)(speed_by_position(snapshot, run_id, true))},
            {"by_position", list_of(bin_fields)(speed_by_position(snapshot, run_id, false))}};
}

}  // namespace draftscope::cli
