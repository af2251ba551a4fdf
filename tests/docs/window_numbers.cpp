// Prints what the window's models have of a run, as JSON. numbers_test.py holds it to the other outputs.
//
// usage: window_numbers CAPTURE RUN
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "app/gui/models/coverage.h"
#include "app/gui/models/latency.h"
#include "app/gui/models/phases.h"
#include "app/gui/models/plane.h"
#include "app/gui/models/rounds.h"
#include "storage/capture_file.h"

namespace draftscope {
namespace {

using nlohmann::json;

json or_null(const std::optional<double>& value) {
    return value ? json(*value) : json(nullptr);
}

json phases_json(const Snapshot& snapshot, RowId run) {
    json out = json::array();
    for (const PhaseTableRow& row : PhasesBuilder().build(snapshot, run).rows)
        out.push_back({{"name", row.name},
                       {"count", row.count},
                       {"total_ms", row.total_ms},
                       {"exposed_ms", row.exposed_ms},
                       {"median_us", row.median_us},
                       {"p90_us", or_null(row.p90_us)},
                       {"share", row.share}});
    return out;
}

json bins_json(const std::vector<PositionBin>& bins) {
    json out = json::array();
    for (const PositionBin& bin : bins)
        out.push_back({{"from", bin.from},
                       {"rounds", bin.rounds},
                       {"committed", bin.committed},
                       {"tau", bin.tau},
                       {"tokens_per_second", bin.tokens_per_second}});
    return out;
}

json latency_json(const Snapshot& snapshot, RowId run) {
    const LatencyModel model = build_latency(snapshot, run);
    json out = {{"by_context", bins_json(model.by_context)}, {"by_position", bins_json(model.by_position)}};
    for (const LatencyRow& row : model.rows)
        out[row.name] = {{"n", row.ms.n},
                         {"p50_ms", row.ms.median},
                         {"p99_ms", or_null(row.ms.p99)},
                         {"max_ms", row.ms.max}};
    return out;
}

json plane_json(const Snapshot& snapshot, RowId run) {
    const PlaneModel model = build_plane(snapshot, run);
    json points = json::array();
    for (const PlanePoint& point : model.points)
        points.push_back({{"head", point.head},
                          {"mode", to_text(point.mode)},
                          {"tau", point.tau},
                          {"rho_tau", point.rho_tau},
                          {"nu", point.nu},
                          {"predicted_speedup", point.predicted.value},
                          {"active_rows", point.active_rows}});
    return {{"kappa", or_null(model.kappa)}, {"points", std::move(points)}};
}

json coverage_json(const Snapshot& snapshot, RowId run) {
    CoverageIndex index;
    index.update(snapshot, run);
    json out = json::array();
    for (const HeadMark& head : build_coverage(snapshot, index, std::nullopt).heads)
        out.push_back({{"head", head.head},
                       {"mode", to_text(head.mode)},
                       {"active_rows", head.active_rows},
                       {"coverage", head.coverage},
                       {"covered_mass", or_null(head.covered_mass)}});
    return out;
}

json acceptance_json(const Snapshot& snapshot, RowId run) {
    RoundsModel rounds;
    update_rounds(rounds, snapshot, run);
    const AcceptanceModel model = build_acceptance(rounds, snapshot, std::nullopt);
    return {{"rounds", model.rounds}, {"tau", model.tau}, {"histogram", model.histogram}};
}

}  // namespace
}  // namespace draftscope

int main(int argc, char** argv) {
    using namespace draftscope;
    if (argc != 3) return 2;
    const auto snapshot = load_capture(argv[1]);
    if (!snapshot.ok()) {
        std::fprintf(stderr, "%s\n", snapshot.error().message.c_str());
        return 1;
    }
    const RowId run = std::atoll(argv[2]);
    const nlohmann::json out = {{"phases", phases_json(**snapshot, run)},
                                {"latency", latency_json(**snapshot, run)},
                                {"plane", plane_json(**snapshot, run)},
                                {"coverage", coverage_json(**snapshot, run)},
                                {"acceptance", acceptance_json(**snapshot, run)}};
    std::printf("%s\n", out.dump().c_str());
    return 0;
}
