#include "stats/sweep_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "capture/head_traits.h"

namespace draftscope {
namespace {

SweepUnit sum_of(const SweepSetting& setting, std::size_t left_out) {
    SweepUnit sum;
    for (std::size_t u = 0; u < setting.units.size(); ++u) {
        if (u == left_out) continue;
        sum.rounds += setting.units[u].rounds;
        sum.committed += setting.units[u].committed;
        sum.positions += setting.units[u].positions;
    }
    return sum;
}

/// Returns the relative error of the times' ratio.
double error_of_ratio(const SweepSetting& a, const SweepSetting& b) {
    if (a.curves.empty() || b.curves.empty())
        return std::hypot(a.cost_error.value_or(0), b.cost_error.value_or(0));
    return ratio_error(a.curves, a.round_ms, b.curves, b.round_ms);
}

/// Sets the figures that a setting has by itself.
void set_figures(const SettingDraws& draws, SweepSetting& setting) {
    const double tau = *setting.total().tau();
    const std::vector<double> taus = draws.taus(setting);
    const auto scaled = [&](double factor, double relative_error) {
        std::vector<double> scaled_draws = taus;
        for (double& one : scaled_draws) one *= factor;
        return draws.estimate(tau * factor, scaled_draws, relative_error);
    };
    setting.figures = {};
    setting.figures.tau = scaled(1, 0);
    setting.figures.tokens_per_second =
        scaled(1e3 * setting.batch / setting.round_ms, setting.cost_error.value_or(0));
    setting.figures.speedup = scaled(setting.plain_ms / setting.round_ms, setting.speedup_error.value_or(0));
}

/// `settings` are in their order.
void mark_ties(const SettingDraws& draws, std::vector<SweepSetting>& settings) {
    const SweepSetting* best = nullptr;
    std::vector<double> best_taus;
    for (SweepSetting& one : settings) {
        if (best == nullptr || best->batch != one.batch) {
            best = &one;
            best_taus = draws.taus(one);
        }
        const auto against = draws.ratio(one, *best, best_taus);
        if (against && against->interval)
            one.figures.ties_with_best = &one == best || against->interval->contains(1);
    }
}

/// Scans the settings of each batch from the shortest round to the longest.
void mark_front(std::vector<SweepSetting>& settings) {
    std::vector<SweepSetting*> order;
    for (SweepSetting& one : settings) order.push_back(&one);
    std::ranges::sort(order, {}, [](const SweepSetting* one) {
        return std::tuple(one->batch, one->round_ms, -one->figures.tau.value);
    });
    const SweepSetting* last = nullptr;  // of the front
    for (SweepSetting* one : order) {
        const double tau = one->figures.tau.value;
        one->figures.on_front = last == nullptr || last->batch != one->batch ||
                                tau > last->figures.tau.value ||
                                (tau == last->figures.tau.value && one->round_ms == last->round_ms);
        if (one->figures.on_front) last = one;
    }
}

double sum_over(const OracleLine& line, double (*value)(std::size_t tokens)) {
    double sum = 0;
    for (const std::vector<double>& counts : line.rounds)
        for (std::size_t tokens = 0; tokens < counts.size(); ++tokens) sum += counts[tokens] * value(tokens);
    return sum;
}

}  // namespace

std::string pair_text(std::string_view drafter, std::string_view head) {
    return head.empty() ? std::string(drafter) : fmt::format("{} x {}", drafter, head);
}

std::string setting_name(const SettingKey& setting) {
    return fmt::format("{} @ {}", pair_text(setting.drafter, setting.head), setting.tree);
}

std::string shorten_paths(std::string_view text) {
    std::string out;
    while (!text.empty()) {
        const std::size_t end = std::min(text.find_first_of(" :=,+"), text.size());
        const std::string_view word = text.substr(0, end);
        // "layers=1/12/21" is no path.
        const bool numbers = !word.starts_with('/') && word.find_first_not_of("0123456789/") == word.npos;
        out += numbers ? word : word.substr(word.find_last_of('/') + 1);
        if (end < text.size()) out += text[end];
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return out;
}

std::string short_name(const SettingKey& setting) {
    return shorten_paths(setting_name(setting));
}

SweepUnit SweepSetting::total() const {
    return sum_of(*this, SettingDraws::none);
}

double SweepSetting::speed() const {
    return round_ms > 0 ? total().tau().value_or(0) * 1e3 * batch / round_ms : 0;
}

double SweepSetting::speedup() const {
    return round_ms > 0 ? total().tau().value_or(0) * plain_ms / round_ms : 0;
}

SettingDraws::SettingDraws(std::size_t conversations, const BootstrapOptions& options)
    : conversations_(conversations), options_(options) {
    if (conversations < min_conversations) return;
    for_each_resample(conversations, options, [&](std::span<const std::uint32_t> times_drawn) {
        times_drawn_.insert(times_drawn_.end(), times_drawn.begin(), times_drawn.end());
    });
}

std::vector<double> SettingDraws::taus(const SweepSetting& setting, std::size_t left_out) const {
    std::vector<double> out;
    for (std::size_t first = 0; first < times_drawn_.size(); first += conversations_) {
        double rounds = 0, committed = 0;
        for (std::size_t u = 0; u < setting.units.size(); ++u) {
            const double times = u == left_out ? 0 : times_drawn_[first + u];
            rounds += times * setting.units[u].rounds;
            committed += times * setting.units[u].committed;
        }
        out.push_back(rounds > 0 ? committed / rounds : 0);
    }
    return out;
}

Estimate SettingDraws::estimate(double value, const std::vector<double>& draws, double relative_error) const {
    BootstrapOptions options = options_;
    options.resolution = relative_error;
    Estimate out{value, {}};
    if (const auto spread = estimate_spread(value, draws, conversations_, options))
        out.interval = spread->interval(value);
    return out;
}

std::optional<Estimate> SettingDraws::ratio(const SweepSetting& setting, const SweepSetting& base,
                                            const std::vector<double>& base_taus,
                                            std::size_t left_out) const {
    const auto tau = sum_of(setting, left_out).tau(), base_tau = sum_of(base, left_out).tau();
    if (!tau || !base_tau || setting.round_ms <= 0 || base.round_ms <= 0) return std::nullopt;
    const double time = base.round_ms / setting.round_ms;
    const std::vector<double> taus = this->taus(setting, left_out);
    std::vector<double> draws;
    for (std::size_t d = 0; d < taus.size(); ++d)
        if (base_taus[d] > 0) draws.push_back(time * taus[d] / base_taus[d]);
    const double error = &setting == &base ? 0 : error_of_ratio(setting, base);
    return estimate(time * *tau / *base_tau, draws, error);
}

void link_full_heads(std::vector<SweepSetting>& settings) {
    std::map<SettingKey, std::size_t> full;
    const auto key = [](SettingKey one) {
        one.head = full_head_id;
        return one;
    };
    for (std::size_t s = 0; s < settings.size(); ++s)
        if (is_full_head(settings[s].head)) full[settings[s]] = s;
    for (SweepSetting& one : settings) {
        const auto found = full.find(key(one));
        one.full = found != full.end() ? std::optional(found->second) : std::nullopt;
    }
}

void rank_settings(std::vector<SweepSetting>& settings, const BootstrapOptions& options) {
    std::erase_if(settings,
                  [](const SweepSetting& one) { return !(one.total().rounds > 0) || !(one.round_ms > 0); });
    std::size_t conversations = 0;
    for (const SweepSetting& one : settings) conversations = std::max(conversations, one.units.size());
    const SettingDraws draws(conversations, options);
    for (SweepSetting& one : settings) set_figures(draws, one);
    std::ranges::stable_sort(settings, {}, [](const SweepSetting& one) {
        return std::pair(one.batch, -one.figures.tokens_per_second.value);
    });
    link_full_heads(settings);
    for (SweepSetting& one : settings)
        if (one.full)
            one.figures.against_full = draws.ratio(one, settings[*one.full], draws.taus(settings[*one.full]));
    mark_ties(draws, settings);
    mark_front(settings);
}

double OracleLine::count() const {
    return sum_over(*this, [](std::size_t) { return 1.0; });
}

double OracleLine::tau() const {
    const double all = count();
    return all > 0 ? sum_over(*this, [](std::size_t tokens) { return static_cast<double>(tokens); }) / all
                   : 0;
}

std::vector<std::string> expand_alternatives(const std::string& spec) {
    const std::size_t bar = spec.find('|');
    if (bar == std::string::npos) return {spec};
    const std::size_t first = spec.rfind('=', bar) + 1;
    const std::size_t end = std::min(spec.find_first_of(",+", bar), spec.size());
    std::vector<std::string> all;
    std::size_t at = first;
    while (at <= end) {
        const std::size_t next = std::min(spec.find('|', at), end);
        for (std::string& one :
             expand_alternatives(spec.substr(0, first) + spec.substr(at, next - at) + spec.substr(end)))
            all.push_back(std::move(one));
        at = next + 1;
    }
    return all;
}

}  // namespace draftscope
