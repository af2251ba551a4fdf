#include "app/gui/models/sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "base/parse.h"
#include "capture/head_traits.h"

namespace draftscope {
namespace {

constexpr std::string_view levels_name = "levels", topk_name = "top-k", nodes_name = "nodes";
constexpr std::string_view file_name = "file";  // its size is a parameter of its own

bool is_of_tree(std::string_view parameter) {
    return parameter == levels_name || parameter == topk_name || parameter == nodes_name;
}

/// Calls `use` with the key and value text of each parameter of a head's spec.
template <typename Use>
void for_each_parameter(std::string_view spec, Use use) {
    const std::size_t colon = spec.find(':');
    if (colon == std::string_view::npos) return;
    std::string_view rest = spec.substr(colon + 1);
    if (const std::size_t suffix = rest.find('+'); suffix != std::string_view::npos)
        rest = rest.substr(0, suffix);
    while (!rest.empty()) {
        const std::string_view piece = rest.substr(0, rest.find(','));
        rest.remove_prefix(std::min(piece.size() + 1, rest.size()));
        const std::size_t equals = piece.find('=');
        if (equals != std::string_view::npos) use(piece.substr(0, equals), piece.substr(equals + 1));
    }
}

/// Returns what two settings share if they differ at most in a parameter. The nodes of a chain follow from
/// its levels. Lines of other heads share the tree, which a head's own parameter does not change.
std::string rest_of(const SweepSetting& setting, std::string_view parameter) {
    const TreeShape& tree = setting.shape;
    std::string out = fmt::format("{}", setting.batch);
    if (!is_of_tree(parameter)) {
        out += fmt::format(" {} {}", setting.drafter, head_id(setting.head));
        for_each_parameter(setting.head, [&](std::string_view key, std::string_view value) {
            if (key != parameter && key != file_name) out += fmt::format(" {}={}", key, value);
        });
    }
    if (parameter != levels_name) out += fmt::format(" levels {}", tree.depth);
    if (parameter != topk_name) out += fmt::format(" top-k {}", tree.topk);
    const bool follows = tree.topk == 1 && (parameter == levels_name || parameter == nodes_name);
    if (parameter != nodes_name && !follows) out += fmt::format(" nodes {}", tree.nodes);
    return out;
}

/// Returns the rows of a batch that have a value of the parameter and pass the filter.
std::vector<std::pair<double, std::size_t>> matching_rows(SweepSettings settings, std::string_view parameter,
                                                          const SweepFilter& filter) {
    std::vector<std::pair<double, std::size_t>> out;
    const std::string wanted = filter.like ? rest_of(settings[*filter.like], parameter) : "";
    for (std::size_t r = 0; r < settings.size(); ++r) {
        const SweepSetting& setting = settings[r];
        const auto value = parameter_value(setting, parameter);
        if (setting.batch != filter.batch || !value) continue;
        if (filter.like && rest_of(setting, parameter) != wanted) continue;
        out.emplace_back(*value, r);
    }
    return out;
}

double speed_of(SweepSettings settings, std::size_t row) {
    return settings[row].figures.tokens_per_second.value;
}

}  // namespace

void ValueRange::add(double value) {
    low = any ? std::min(low, value) : value;
    high = any ? std::max(high, value) : value;
    any = true;
}

void ValueRange::add(const Estimate& estimate) {
    add(estimate.value);
    if (estimate.interval) add(estimate.interval->low);
    if (estimate.interval) add(estimate.interval->high);
}

void ValueRange::widen(double share) {
    const double margin = share * std::max(high - low, 0.02 * std::max(std::abs(high), 1e-6));
    low -= margin;
    high += margin;
}

double ValueRange::at(double value) const {
    return high > low ? std::clamp((value - low) / (high - low), 0.0, 1.0) : 0;
}

std::vector<std::size_t> rows_of_batch(SweepSettings settings, int batch) {
    std::vector<std::size_t> rows;
    for (std::size_t r = 0; r < settings.size(); ++r)
        if (settings[r].batch == batch) rows.push_back(r);
    return rows;
}

std::vector<int> sweep_batches(SweepSettings settings) {
    std::set<int> batches;
    for (const SweepSetting& setting : settings) batches.insert(setting.batch);
    return {batches.begin(), batches.end()};
}

std::optional<double> parameter_value(const SweepSetting& setting, std::string_view name) {
    if (name == levels_name) return setting.shape.depth + 1;
    if (name == topk_name) return setting.shape.topk;
    if (name == nodes_name) return setting.shape.nodes;
    std::optional<double> found;
    for_each_parameter(setting.head, [&](std::string_view key, std::string_view value) {
        if (key == name) found = parse_number<double>(value);
    });
    return found;
}

std::vector<SweepParameter> sweep_parameters(SweepSettings settings, int batch) {
    std::set<std::string> names;
    for (const SweepSetting& setting : settings)
        for_each_parameter(setting.head, [&](std::string_view key, std::string_view value) {
            if (parse_number<double>(value)) names.emplace(key);
        });
    std::vector<std::string> ordered(names.begin(), names.end());
    for (const std::string_view name : {levels_name, nodes_name, topk_name}) ordered.emplace_back(name);
    std::vector<SweepParameter> out;
    for (const std::string& name : ordered) {
        std::set<double> values;
        for (const auto& [value, row] : matching_rows(settings, name, {batch, std::nullopt}))
            values.insert(value);
        if (values.size() > 1) out.push_back({name, {values.begin(), values.end()}});
    }
    return out;
}

std::vector<SweepCurve> sweep_curves(SweepSettings settings, std::string_view parameter,
                                     const SweepFilter& filter) {
    // By drafter and head, then by value.
    std::map<std::pair<std::string, std::string>, std::map<double, std::size_t>> best;
    for (const auto& [value, row] : matching_rows(settings, parameter, filter)) {
        const SweepSetting& setting = settings[row];
        const bool every_size = is_of_tree(parameter) && !filter.one_per_head;
        const std::string head(every_size ? std::string_view(setting.head) : head_id(setting.head));
        const auto [at, is_new] = best[{setting.drafter, head}].emplace(value, row);
        if (!is_new && speed_of(settings, row) > speed_of(settings, at->second)) at->second = row;
    }
    std::vector<SweepCurve> curves;
    for (const auto& [pair, points] : best)
        curves.push_back({shorten_paths(pair_text(pair.first, pair.second)),
                          settings[points.begin()->second].head,
                          {points.begin(), points.end()}});
    const auto fastest = [&](const SweepCurve& curve) {
        double speed = 0;
        for (const auto& [value, row] : curve.points) speed = std::max(speed, speed_of(settings, row));
        return speed;
    };
    std::ranges::stable_sort(curves, std::greater(), fastest);
    return curves;
}

std::vector<bool> fitting_labels(std::span<const float> places, std::span<const float> widths, float gap) {
    std::vector<bool> fits(places.size());
    for (std::size_t i = places.size(), last = i; i-- > 0;) {
        fits[i] = last == places.size() || places[last] - places[i] >= (widths[last] + widths[i]) / 2 + gap;
        if (fits[i]) last = i;
    }
    return fits;
}

std::vector<SweepOracleLine> sweep_oracle_lines(SweepSettings settings, std::span<const OracleLine> oracles,
                                                std::span<const SweepCurve> curves, bool speed) {
    std::map<std::string, SweepOracleLine> best;  // by drafter
    for (const SweepCurve& curve : curves) {
        const SweepSetting& setting = settings[curve.points.front().second];
        for (const OracleLine& one : oracles) {
            const double value = speed ? one.speedup() : one.tau();
            if (one.drafters.size() > 1 || one.drafters[0] != setting.drafter || one.batch != setting.batch)
                continue;
            SweepOracleLine& line = best[setting.drafter];
            if (value > line.value)
                line = {"oracle of " + shorten_paths(pair_text(setting.drafter, one.head)), one.head, value};
        }
    }
    const auto figure = [&](std::size_t row) {
        return speed ? settings[row].figures.speedup.value : settings[row].figures.tau.value;
    };
    std::vector<SweepOracleLine> lines;
    for (auto& [drafter, line] : best) {
        if (line.value <= 0) continue;
        const auto distance = [&](bool right) {
            double least = std::numeric_limits<double>::infinity();
            for (const SweepCurve& curve : curves) {
                const auto& [at, row] = right ? curve.points.back() : curve.points.front();
                least = std::min(least, std::abs(figure(row) - line.value));
            }
            return least;
        };
        line.name_at_right = distance(true) > distance(false);
        lines.push_back(std::move(line));
    }
    return lines;
}

SweepCurveModel build_sweep_curves(SweepSettings settings, std::span<const OracleLine> oracles,
                                   std::string_view parameter, const SweepFilter& filter) {
    constexpr std::size_t max_curves = 8;
    SweepCurveModel model;
    model.curves = sweep_curves(settings, parameter, filter);
    model.left_out = model.curves.size() - std::min(model.curves.size(), max_curves);
    model.curves.resize(model.curves.size() - model.left_out);
    std::set<double> values;
    std::map<std::string_view, int> of_head;
    for (SweepCurve& curve : model.curves) {
        curve.same_colour = of_head[head_id(curve.head)]++;
        for (const auto& [value, row] : curve.points) values.insert(value);
    }
    model.values.assign(values.begin(), values.end());
    model.speed_oracles = sweep_oracle_lines(settings, oracles, model.curves, true);
    model.tau_oracles = sweep_oracle_lines(settings, oracles, model.curves, false);
    return model;
}

SweepHeatMap sweep_heat_map(SweepSettings settings, std::string_view x, std::string_view y, int batch) {
    SweepHeatMap map;
    std::map<std::pair<double, double>, std::size_t> best;  // by y and x
    std::set<double> xs, ys;
    for (const auto& [value, row] : matching_rows(settings, x, {batch, std::nullopt})) {
        const auto other = parameter_value(settings[row], y);
        if (!other) continue;
        xs.insert(value);
        ys.insert(*other);
        const auto [at, is_new] = best.emplace(std::pair(*other, value), row);
        if (!is_new && speed_of(settings, row) > speed_of(settings, at->second)) at->second = row;
    }
    map.xs.assign(xs.begin(), xs.end());
    map.ys.assign(ys.begin(), ys.end());
    for (const double at_y : map.ys)
        for (const double at_x : map.xs) {
            const auto found = best.find({at_y, at_x});
            map.rows.push_back(found == best.end() ? std::nullopt : std::optional(found->second));
            if (found == best.end()) continue;
            const double speedup = settings[found->second].figures.speedup.value;
            map.low = map.high == 0 ? speedup : std::min(map.low, speedup);
            map.high = std::max(map.high, speedup);
        }
    return map;
}

std::vector<std::size_t> sweep_front(SweepSettings settings, int batch) {
    std::vector<std::size_t> front = rows_of_batch(settings, batch);
    std::erase_if(front, [&](std::size_t r) { return !settings[r].figures.on_front; });
    std::ranges::stable_sort(front, {}, [&](std::size_t r) { return settings[r].round_ms; });
    return front;
}

std::vector<std::pair<std::string, std::string>> describe_setting(const SweepSetting& setting) {
    const SettingFigures& figures = setting.figures;
    std::vector<std::pair<std::string, std::string>> out = {
        {"tau", estimate_text(figures.tau, 3)},
        {"tokens/s", estimate_text(figures.tokens_per_second, 1)},
        {"x AR", estimate_text(figures.speedup, 3)}};
    if (figures.against_full) out.emplace_back("x full head", estimate_text(*figures.against_full, 3));
    out.emplace_back("round", fmt::format("{:.2f} ms; without a drafter {:.2f} ms a token", setting.round_ms,
                                          setting.plain_ms));
    if (figures.on_front) out.emplace_back("front", "nothing accepts as much in less time");
    if (figures.ties_with_best.value_or(false))
        out.emplace_back("", "not shown to be slower than the fastest");
    if (!setting.exact) out.emplace_back("acceptance", "an estimate, see the notes");
    if (setting.extrapolated) out.emplace_back("cost", "outside of what the profile measured");
    return out;
}

std::vector<AdviceLine> advice_lines(SweepSettings settings, std::optional<std::size_t> chosen,
                                     std::optional<std::size_t> runner_up, std::optional<std::size_t> usual) {
    std::vector<AdviceLine> lines;
    const auto add = [&](const char* role, std::optional<std::size_t> row) {
        if (!row) return;
        const auto known = std::ranges::find(lines, *row, &AdviceLine::row);
        if (known == lines.end())
            lines.push_back({role, *row});
        else
            known->role += std::string(", ") + role;
    };
    if (!chosen || *chosen >= settings.size()) return lines;
    add("advised", chosen);
    add("fastest", rows_of_batch(settings, settings[*chosen].batch).front());
    add("runner-up", runner_up);
    add("full head", settings[*chosen].full);
    add("default", usual);
    return lines;
}

ValueRange advice_scale(SweepSettings settings, const std::vector<AdviceLine>& lines) {
    ValueRange scale;
    scale.add(1);
    for (const AdviceLine& line : lines) scale.add(settings[line.row].figures.speedup);
    scale.widen(0.05);
    return scale;
}

}  // namespace draftscope
