#include "app/jobs/sweep/saved_sweep.h"

#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "app/jobs/resolve/resolve.h"
#include "app/jobs/sweep/pricing.h"
#include "base/format_count.h"
#include "engine/draft/registry.h"
#include "engine/recording/recording_info.h"
#include "storage/sweep_file.h"

namespace draftscope {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(SettingKey, drafter, head, tree, batch)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(OracleLine, drafters, head, batch, levels, weights, rounds,
                                                positions, round_ms, plain_ms)

void to_json(nlohmann::json& to, const ConfirmedSetting& from) {
    const auto& interval = from.speedup.interval;
    to = {{"name", from.name},
          {"batch", from.batch},
          {"tau", from.tau},
          {"tokens_per_second", from.tokens_per_second},
          {"speedup", from.speedup.value},
          {"low", interval ? nlohmann::json(interval->low) : nlohmann::json()},
          {"high", interval ? nlohmann::json(interval->high) : nlohmann::json()}};
}
void from_json(const nlohmann::json& from, ConfirmedSetting& to) {
    from.at("name").get_to(to.name);
    to.batch = from.value("batch", 0);  // of older files: not known
    from.at("tau").get_to(to.tau);
    from.at("tokens_per_second").get_to(to.tokens_per_second);
    from.at("speedup").get_to(to.speedup.value);
    if (from.at("low").is_number() && from.at("high").is_number())
        to.speedup.interval = Interval{from["low"].get<double>(), from["high"].get<double>()};
}

namespace {

using nlohmann::json;

/// Where a row keeps a figure. NaN = no interval.
struct StoredFigure {
    Estimate SettingFigures::*figure;
    double SweptRow::*value, SweptRow::*low, SweptRow::*high;
};
constexpr StoredFigure stored_figures[] = {
    {&SettingFigures::tau, &SweptRow::tau, &SweptRow::tau_low, &SweptRow::tau_high},
    {&SettingFigures::tokens_per_second, &SweptRow::tokens_per_second, &SweptRow::tokens_per_second_low,
     &SweptRow::tokens_per_second_high},
    {&SettingFigures::speedup, &SweptRow::speedup, &SweptRow::speedup_low, &SweptRow::speedup_high}};

/// Parses [[rounds, committed, positions, accepted], ...]. Older files lack the last two, or the last.
Result<std::vector<SweepUnit>> parse_units(const std::string& text) {
    const json list = json::parse(text, nullptr, false);
    std::vector<SweepUnit> units;
    for (const json& one : list.is_array() ? list : json::array()) {
        if (!one.is_array() || one.size() < 2 || one.size() > 4 ||
            !std::ranges::all_of(one, [](const json& number) { return number.is_number(); }))
            break;
        const auto value = [&](std::size_t i, double absent) {
            return i < one.size() ? one[i].get<double>() : absent;
        };
        units.push_back({value(0, 0), value(1, 0), value(2, 0), value(3, -1)});
    }
    if (!list.is_array() || units.size() != list.size())
        return bad_input("table sweep: units is {}, expected [[rounds, committed, positions, accepted], ...]",
                         text.substr(0, 40));
    return units;
}

/// Calls `copy(member of a row, member of a setting)` for what both have.
template <typename Row, typename Setting, typename Copy>
void for_each_common(Row& row, Setting& setting, Copy copy) {
    copy(row.drafter, setting.drafter);
    copy(row.head, setting.head);
    copy(row.tree, setting.tree);
    copy(row.batch, setting.batch);
    copy(row.round_ms, setting.round_ms);
    copy(row.plain_ms, setting.plain_ms);
    copy(row.exact, setting.exact);
    copy(row.extrapolated, setting.extrapolated);
    copy(row.on_front, setting.figures.on_front);
}

SweptRow to_row(const SweepSetting& setting, const std::string& source) {
    SweptRow row;
    row.source = source;
    for_each_common(row, setting, [](auto& to, const auto& from) { to = from; });
    constexpr double none = std::numeric_limits<double>::quiet_NaN();
    for (const StoredFigure& one : stored_figures) {
        const Estimate& figure = setting.figures.*one.figure;
        row.*one.value = figure.value;
        row.*one.low = figure.interval ? figure.interval->low : none;
        row.*one.high = figure.interval ? figure.interval->high : none;
    }
    json units = json::array();
    for (const SweepUnit& unit : setting.units)
        units.push_back({unit.rounds, unit.committed, unit.positions, unit.accepted});
    row.units = units.dump();
    return row;
}

Result<SweepSetting> to_setting(const SweptRow& row, const std::string& path) {
    SweepSetting setting;
    for_each_common(row, setting, [](const auto& from, auto& to) { to = from; });
    const auto tree = parse_tree_spec(row.tree);
    auto units = parse_units(row.units);
    if (!tree.ok() || !units.ok())
        return bad_input("{}: {}", path, (tree.ok() ? units.error() : tree.error()).message);
    setting.shape = {tree->depth, tree->topk, tree->nodes};
    setting.units = std::move(*units);
    for (const StoredFigure& one : stored_figures) {
        Estimate& figure = setting.figures.*one.figure;
        figure.value = row.*one.value;
        if (std::isfinite(row.*one.low) && std::isfinite(row.*one.high))
            figure.interval = Interval{row.*one.low, row.*one.high};
    }
    return setting;
}

/// Returns whether the counts are of as many drafters, with at least one round.
bool is_valid(const OracleLine& line) {
    constexpr std::size_t max_tokens = 1000;
    const auto counts = [](const std::vector<double>& list) {
        return list.size() < max_tokens && std::ranges::all_of(list, [](double one) { return one >= 0; });
    };
    return !line.drafters.empty() && line.rounds.size() == line.drafters.size() && line.batch >= 1 &&
           (line.positions.empty() || have_same_shape(line.positions, line.rounds)) &&
           std::ranges::all_of(line.rounds, counts) && std::ranges::all_of(line.positions, counts) &&
           line.count() > 0;
}

/// Calls `visit(path, member)` for what describes a sweep, in JSON.
template <typename Report, typename Visit>
void for_each_member(Report& report, Visit visit) {
    visit("/recording", report.recording);
    visit("/model", report.run.model);
    visit("/run/backend", report.run.backend);
    visit("/run/precision", report.run.precision);
    visit("/run/threads", report.run.threads);
    visit("/run/head_weights", report.run.artefacts);
    visit("/costs", report.costs);
    visit("/default_tree", report.default_tree);
    visit("/context/positions", report.context.positions);
    visit("/context/tokens", report.context.tokens);
    visit("/max_new", report.max_new);
    visit("/temperature", report.temperature);
    visit("/categories", report.categories);
    visit("/live/verdict", report.live_verdict);
}
template <typename AnyAdvice, typename Visit>
void for_each_member_of_advice(AnyAdvice& advice, Visit visit) {
    visit("/advice/summary", advice.summary);
    visit("/advice/headline", advice.headline);
    visit("/advice/reasons", advice.reasons);
    visit("/advice/changes", advice.changes);
    visit("/advice/run", advice.run_line);
    visit("/advice/serving", advice.serving);
    visit("/advice/plain", advice.plain);
}

std::string absolute_folder(const std::string& folder) {
    std::error_code error;
    const auto path = std::filesystem::absolute(folder, error);
    return error ? folder : path.lexically_normal().string();
}

std::string describe(const SweepReport& report) {
    json out = {{"weights", json::object()}, {"oracles", report.oracles}};
    const auto write = [&](const char* path, const auto& value) { out[json::json_pointer(path)] = value; };
    for_each_member(report, write);
    out["recording"] = absolute_folder(report.recording);
    for (const SweepSetting& one : report.settings)
        out["weights"][pair_text(one.drafter, one.head)] = one.weights;
    for (const SweepSetting& one : report.settings)
        if (!one.lengths.empty()) out["lengths"][setting_name(one)] = one.lengths;
    // Continuing a sweep predicts the times again; tau and speeds are for readers of the file.
    for (std::size_t i = 0; i < report.oracles.size(); ++i) {
        out["oracles"][i]["tau"] = report.oracles[i].tau();
        out["oracles"][i]["tokens_per_second"] = report.oracles[i].tokens_per_second();
        out["oracles"][i]["speedup"] = report.oracles[i].speedup();
    }
    for (const ConfirmedSetting& one : report.confirmed) out["live"]["settings"].push_back(one);
    out["notes"] = report.estimates;
    for (const std::string& reason : report.skipped) out["notes"].push_back(reason);
    if (report.advice.summary.empty()) return out.dump(-1, ' ', false, json::error_handler_t::replace);
    for_each_member_of_advice(report.advice, write);
    // Settings by name, because places may differ in a file.
    const auto name = [&](std::optional<std::size_t> s) {
        return s && *s < report.settings.size() ? json(static_cast<const SettingKey&>(report.settings[*s]))
                                                : json();
    };
    out["advice"]["chosen"] = name(report.advice.choice.chosen);
    out["advice"]["runner_up"] = name(report.advice.choice.runner_up);
    return out.dump(-1, ' ', false, json::error_handler_t::replace);
}

/// Reads what describe() wrote.
void parse_description(const std::string& text, SweepReport& report) {
    const json from = json::parse(text, nullptr, false);
    if (!from.is_object()) return;
    const auto read = [&](const char* path, auto& value) {
        try {  // the library has no other way to say what is missing or of another type
            from.at(json::json_pointer(path)).get_to(value);
        } catch (const json::exception&) {
            return;
        }
    };
    for_each_member(report, read);
    for_each_member_of_advice(report.advice, read);
    read("/notes", report.estimates);
    read("/live/settings", report.confirmed);
    for (ConfirmedSetting& one : report.confirmed) find_setting(report, one);
    std::map<std::string, std::string> weights;
    read("/weights", weights);
    for (SweepSetting& one : report.settings) one.weights = weights[pair_text(one.drafter, one.head)];
    std::map<std::string, std::vector<double>> lengths;
    read("/lengths", lengths);
    for (SweepSetting& one : report.settings) one.lengths = lengths[setting_name(one)];
    json oracles;
    read("/oracles", oracles);
    for (std::size_t i = 0; oracles.is_array() && i < oracles.size(); ++i) {
        OracleLine line;
        read(fmt::format("/oracles/{}", i).c_str(), line);
        if (is_valid(line)) report.oracles.push_back(std::move(line));
    }
    const auto find = [&](const char* path) -> std::optional<std::size_t> {
        SettingKey key;
        read(path, key);
        for (std::size_t s = 0; s < report.settings.size(); ++s)
            if (report.settings[s] == key) return s;
        return std::nullopt;
    };
    report.advice.choice.chosen = find("/advice/chosen");
    report.advice.choice.runner_up = find("/advice/runner_up");
}

}  // namespace

void set_profile(MachineProfile profile, SweepReport& report) {
    report.run.backend = profile.backend;
    report.run.precision = profile.precision;
    report.run.threads = profile.threads;
    report.default_tree = default_tree(profile.backend);
    const std::string threads =
        profile.threads > 0 ? ", " + format_count(profile.threads, "thread") : std::string();
    report.costs = fmt::format("{} ({}{})", profile.machine.empty() ? profile.path : profile.machine,
                               to_text(profile.kind), threads);
    report.profile = std::move(profile);
}

void find_setting(const SweepReport& report, ConfirmedSetting& live) {
    const auto found = std::ranges::find_if(report.settings, [&](const SweepSetting& one) {
        return (live.batch == 0 || one.batch == live.batch) && setting_name(one) == live.name;
    });
    if (found == report.settings.end()) return;
    live.setting = static_cast<std::size_t>(found - report.settings.begin());
    const auto &predicted = found->figures.speedup.interval, &measured = live.speedup.interval;
    if (predicted && measured)
        live.agrees = predicted->low <= measured->high && measured->low <= predicted->high;
}

void prepare_for_window(SweepReport& report) {
    const RunConfig usual;
    for (std::size_t s = 0; s < report.settings.size() && !report.usual; ++s) {
        const SweepSetting& one = report.settings[s];
        if (drafter_id(one.drafter) == usual.drafter && one.head == usual.head &&
            one.tree == report.default_tree)
            report.usual = s;
    }
    for (auto* texts : {&report.skipped, &report.notes, &report.estimates, &report.advice.reasons})
        for (std::string& text : *texts) text = to_window_words(text);
    if (!report.recording.empty()) report.recording = absolute_folder(report.recording);
    RunConfig& run = report.run;
    run.prompts_file = report.recording;
    run.max_new = report.max_new > 0 ? report.max_new : run.max_new;
    run.temperature = report.temperature;
    const auto info = read_recording_info(report.recording + "/trace.json");
    if (!info.ok()) return;  // the run itself reports a missing recording
    run.top_p = info->sampling.top_p;
    run.top_k = info->sampling.top_k;
    run.seed = info->sampling.seed;
    run.ignore_eos = info->ignore_eos;
}

Result<std::vector<std::shared_ptr<const SweepReport>>> load_sweeps(const std::string& path) {
    std::vector<std::shared_ptr<const SweepReport>> sweeps;
    DS_ASSIGN(const std::vector<SweptSource> stored, read_all_swept(path));
    for (const SweptSource& from : stored) {
        auto report = std::make_shared<SweepReport>();
        report->file = path;
        report->source = from.source;
        for (const SweptRow& row : from.rows) {
            DS_ASSIGN(SweepSetting one, to_setting(row, path));
            report->conversations = std::max(report->conversations, one.units.size());
            report->settings.push_back(std::move(one));
        }
        link_full_heads(report->settings);
        parse_description(from.about, *report);
        prepare_for_window(*report);
        sweeps.push_back(std::move(report));
    }
    return sweeps;
}

Status save_sweep(const std::string& path, const SweepReport& report) {
    std::vector<SweptRow> rows;
    for (const SweepSetting& one : report.settings) rows.push_back(to_row(one, report.source));
    return write_swept(path, report.source, std::move(rows), describe(report));
}

}  // namespace draftscope
