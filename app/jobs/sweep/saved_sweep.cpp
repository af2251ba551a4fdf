#include "app/jobs/sweep/saved_sweep.h"

#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "app/jobs/sweep/pricing.h"
#include "app/jobs/sweep/sweep_about.h"

namespace draftscope {
namespace {

using nlohmann::json;

void set_estimate(const Estimate& from, double& value, double& low, double& high) {
    constexpr double none = std::numeric_limits<double>::quiet_NaN();
    value = from.value;
    low = from.interval ? from.interval->low : none;
    high = from.interval ? from.interval->high : none;
}

/// Parses [[rounds, committed], ...].
Result<std::vector<SweepUnit>> parse_units(const std::string& text) {
    const json list = json::parse(text, nullptr, false);
    std::vector<SweepUnit> units;
    for (const json& one : list.is_array() ? list : json::array()) {
        if (!one.is_array() || one.size() != 2 || !one[0].is_number() || !one[1].is_number()) break;
        units.push_back({one[0].get<double>(), one[1].get<double>()});
    }
    if (!list.is_array() || units.size() != list.size())
        return bad_input("table sweep: units is {}, expected [[rounds, committed], ...]", text.substr(0, 40));
    return units;
}

}  // namespace

Result<SweepSetting> to_setting(const SweptRow& row, const std::string& path) {
    SweepSetting one;
    one.drafter = row.drafter;
    one.head = row.head;
    one.tree = row.tree;
    one.batch = row.batch;
    one.exact = row.exact;
    const auto tree = parse_tree_spec(row.tree);
    auto units = parse_units(row.units);
    if (!tree.ok() || !units.ok())
        return bad_input("{}: {}", path, (tree.ok() ? units.error() : tree.error()).message);
    one.shape = {tree->depth, tree->topk, tree->nodes};
    one.units = std::move(*units);
    return one;
}

Result<SavedSweep> load_sweep(const std::string& path, const std::string& source) {
    SavedSweep saved;
    std::error_code error;
    if (!std::filesystem::exists(path, error)) return saved;
    DS_ASSIGN(const std::vector<SweptSource> sweeps, read_all_swept(path));
    for (const SweptSource& sweep : sweeps) {
        if (sweep.source != source) {
            saved.others += sweep.rows.size();
            saved.other_source = sweep.source;
            continue;
        }
        SweepAbout about = parse_sweep_about(sweep.about);
        for (const SweptRow& row : sweep.rows) {
            DS_ASSIGN(SweepSetting one, to_setting(row, path));
            one.weights = about.weights[pair_text(one.drafter, one.head)];
            saved.settings.push_back(std::move(one));
        }
        saved.oracles = std::move(about.oracles);
    }
    return saved;
}

Status save_sweep(const std::string& path, const SweepReport& report) {
    std::vector<SweptRow> rows;
    for (const SweepRow& one : report.rows) {
        const SweepSetting& setting = report.settings[one.setting];
        SweptRow row;
        row.source = report.source;
        row.drafter = setting.drafter;
        row.head = setting.head;
        row.tree = setting.tree;
        row.batch = setting.batch;
        set_estimate(one.tau, row.tau, row.tau_low, row.tau_high);
        set_estimate(one.tokens_per_second, row.tokens_per_second, row.tokens_per_second_low,
                     row.tokens_per_second_high);
        set_estimate(one.speedup, row.speedup, row.speedup_low, row.speedup_high);
        row.round_ms = setting.round_ms;
        row.plain_ms = setting.plain_ms;
        row.exact = setting.exact;
        row.extrapolated = setting.extrapolated;
        row.on_front = one.on_front;
        json units = json::array();
        for (const SweepUnit& unit : setting.units) units.push_back({unit.rounds, unit.committed});
        row.units = units.dump();
        rows.push_back(std::move(row));
    }
    return write_swept(path, report.source, std::move(rows),
                       sweep_about_json(report).dump(-1, ' ', false, json::error_handler_t::replace));
}

}  // namespace draftscope
