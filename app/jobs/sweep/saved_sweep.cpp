#include "app/jobs/sweep/saved_sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "app/jobs/resolve/resolve.h"
#include "app/jobs/sweep/pricing.h"
#include "app/jobs/sweep/sweep_about.h"
#include "engine/draft/registry.h"
#include "engine/recording/recording_info.h"

namespace draftscope {
namespace {

using nlohmann::json;

void set_estimate(const Estimate& from, double& value, double& low, double& high) {
    constexpr double none = std::numeric_limits<double>::quiet_NaN();
    value = from.value;
    low = from.interval ? from.interval->low : none;
    high = from.interval ? from.interval->high : none;
}

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

Estimate to_estimate(double value, double low, double high) {
    Estimate out{value, std::nullopt};
    if (std::isfinite(low) && std::isfinite(high)) out.interval = Interval{low, high};
    return out;
}

json setting_json(const SweepSetting& one) {
    return {{"drafter", one.drafter}, {"head", one.head}, {"tree", one.tree}, {"batch", one.batch}};
}

std::optional<std::size_t> find_setting(const std::vector<SweepSetting>& settings, const json& wanted) {
    for (std::size_t s = 0; s < settings.size(); ++s)
        if (setting_json(settings[s]) == wanted) return s;
    return std::nullopt;
}

std::string text_of(const json& object, const char* key) {
    const auto found = object.find(key);
    return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

std::vector<std::string> texts_of(const json& object, const char* key) {
    std::vector<std::string> out;
    const auto found = object.find(key);
    if (found == object.end() || !found->is_array()) return out;
    for (const json& one : *found)
        if (one.is_string()) out.push_back(one.get<std::string>());
    return out;
}

/// Names settings, because places may differ in a file.
json advice_json(const SweepReport& report, const Advice& advice) {
    const auto place = [&](std::optional<std::size_t> s) {
        return s && *s < report.settings.size() ? setting_json(report.settings[*s]) : json();
    };
    return {{"summary", advice.summary},
            {"changes", advice.changes},
            {"run", advice.run_line},
            {"serving", advice.serving},
            {"plain", advice.choice.speedup.value <= 1},
            {"chosen", place(advice.choice.chosen)},
            {"runner_up", place(advice.choice.runner_up)}};
}

AdviceView read_advice(const json& advice, const std::vector<SweepSetting>& settings) {
    AdviceView out;
    if (!advice.is_object()) return out;
    out.summary = text_of(advice, "summary");
    out.changes = texts_of(advice, "changes");
    out.run_line = text_of(advice, "run");
    out.serving = texts_of(advice, "serving");
    if (const auto found = advice.find("plain"); found != advice.end() && found->is_boolean())
        out.plain = found->get<bool>();
    if (advice.contains("chosen")) out.chosen = find_setting(settings, advice["chosen"]);
    if (advice.contains("runner_up")) out.runner_up = find_setting(settings, advice["runner_up"]);
    return out;
}

/// Returns the place of the setting that `run` uses by default, whose tree is `tree`.
std::optional<std::size_t> find_usual(const SweepView& view, const std::string& tree) {
    const RunConfig usual;
    for (std::size_t r = 0; r < view.rows.size(); ++r) {
        const SweepSetting& one = view.settings[view.rows[r].setting];
        if (drafter_id(one.drafter) == usual.drafter && one.head == usual.head && one.tree == tree) return r;
    }
    return std::nullopt;
}

/// Returns a run of the sweep's model and of its recording's prompts, as they were recorded.
RunConfig recorded_run(const SweepAbout& about) {
    RunConfig run = about.run;
    run.model = about.model;
    run.prompts_file = about.recording;
    run.max_new = about.max_new > 0 ? about.max_new : run.max_new;
    run.temperature = about.temperature;
    const auto info = read_recording_info(about.recording + "/trace.json");
    if (!info.ok()) return run;  // the run itself reports a missing recording
    run.top_p = info->sampling.top_p;
    run.top_k = info->sampling.top_k;
    run.seed = info->sampling.seed;
    run.ignore_eos = info->ignore_eos;
    return run;
}

/// Sets what describes the sweep of a view whose settings and rows are set.
void set_about(SweepAbout about, SweepView& view) {
    view.run = recorded_run(about);
    view.recording = std::move(about.recording);
    view.model = std::move(about.model);
    view.costs = std::move(about.costs);
    view.categories = std::move(about.categories);
    view.notes = std::move(about.notes);
    view.max_new = about.max_new;
    for (const OracleLine& line : about.oracles)
        if (line.drafters.size() == 1)
            view.oracles.push_back(
                {line.drafters.front(), line.head, line.batch, line.tau(), line.speedup()});
    view.usual = find_usual(view, about.default_tree);
    view.advice = read_advice(about.advice, view.settings);
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

Result<std::vector<std::shared_ptr<const SweepView>>> load_sweep_views(const std::string& path) {
    DS_ASSIGN(const std::vector<SweptSource> sweeps, read_all_swept(path));
    std::vector<std::shared_ptr<const SweepView>> views;
    for (const SweptSource& sweep : sweeps) {
        auto view = std::make_shared<SweepView>();
        view->file = path;
        view->source = sweep.source;
        for (const SweptRow& row : sweep.rows) {
            DS_ASSIGN(SweepSetting one, to_setting(row, path));
            one.round_ms = row.round_ms;
            one.plain_ms = row.plain_ms;
            one.extrapolated = row.extrapolated;
            view->conversations = std::max(view->conversations, one.units.size());
            SweepRow figures;
            figures.setting = view->settings.size();
            figures.tau = to_estimate(row.tau, row.tau_low, row.tau_high);
            figures.tokens_per_second =
                to_estimate(row.tokens_per_second, row.tokens_per_second_low, row.tokens_per_second_high);
            figures.speedup = to_estimate(row.speedup, row.speedup_low, row.speedup_high);
            figures.on_front = row.on_front;
            view->settings.push_back(std::move(one));
            view->rows.push_back(figures);
        }
        set_about(parse_sweep_about(sweep.about), *view);
        views.push_back(std::move(view));
    }
    return views;
}

std::shared_ptr<const SweepView> make_sweep_view(const SweepReport& report, const Advice& advice,
                                                 const std::string& model) {
    auto view = std::make_shared<SweepView>();
    view->source = report.source;
    view->conversations = report.conversations;
    view->settings = report.settings;
    view->rows = report.rows;
    SweepAbout about = describe_sweep(report, model);
    about.advice = advice_json(report, advice);
    set_about(std::move(about), *view);
    return view;
}

Status save_sweep(const std::string& path, const SweepReport& report, const std::string& model,
                  const Advice* advice) {
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
        for (const SweepUnit& unit : setting.units)
            units.push_back({unit.rounds, unit.committed, unit.positions, unit.accepted});
        row.units = units.dump();
        rows.push_back(std::move(row));
    }
    SweepAbout about = describe_sweep(report, model);
    if (advice != nullptr) about.advice = advice_json(report, *advice);
    return write_swept(path, report.source, std::move(rows),
                       to_json(about).dump(-1, ' ', false, json::error_handler_t::replace));
}

}  // namespace draftscope
