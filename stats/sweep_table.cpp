#include "stats/sweep_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

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

class Table {
  public:
    Table(const std::vector<SweepSetting>& settings, const BootstrapOptions& options)
        : settings_(settings), draws_(conversations_of(settings), options) {}

    std::vector<SweepRow> run() {
        std::vector<SweepRow> rows;
        for (std::size_t s = 0; s < settings_.size(); ++s)
            if (settings_[s].total().rounds > 0 && settings_[s].round_ms > 0) rows.push_back(row(s));
        std::stable_sort(rows.begin(), rows.end(), [&](const SweepRow& a, const SweepRow& b) {
            const int one = settings_[a.setting].batch, other = settings_[b.setting].batch;
            return one != other ? one < other : a.tokens_per_second.value > b.tokens_per_second.value;
        });
        mark_ties(rows);
        mark_front(rows);
        return rows;
    }

  private:
    static std::size_t conversations_of(const std::vector<SweepSetting>& settings) {
        std::size_t count = 0;
        for (const SweepSetting& setting : settings) count = std::max(count, setting.units.size());
        return count;
    }

    SweepRow row(std::size_t s) const {
        const SweepSetting& setting = settings_[s];
        const double tau = *setting.total().tau();
        const double error = setting.cost_error.value_or(0);
        const std::vector<double> taus = draws_.taus(setting);
        const auto scaled = [&](double factor, double relative_error) {
            std::vector<double> draws = taus;
            for (double& one : draws) one *= factor;
            return draws_.estimate(tau * factor, draws, relative_error);
        };
        SweepRow out;
        out.setting = s;
        out.tau = scaled(1, 0);
        out.tokens_per_second = scaled(1e3 * setting.batch / setting.round_ms, error);
        out.speedup = scaled(setting.plain_ms / setting.round_ms, setting.speedup_error.value_or(0));
        if (setting.full) {
            const SweepSetting& full = settings_[*setting.full];
            out.against_full = draws_.ratio(setting, full, draws_.taus(full));
        }
        return out;
    }

    void mark_ties(std::vector<SweepRow>& rows) const {
        const SweepSetting* best = nullptr;
        std::vector<double> best_taus;
        for (SweepRow& row : rows) {
            const SweepSetting& mine = settings_[row.setting];
            if (best == nullptr || best->batch != mine.batch) {
                best = &mine;
                best_taus = draws_.taus(mine);
            }
            const auto against = draws_.ratio(mine, *best, best_taus);
            if (against && against->interval)
                row.ties_with_best = &mine == best || against->interval->contains(1);
        }
    }

    /// Scans the rows of each batch from the shortest round to the longest.
    void mark_front(std::vector<SweepRow>& rows) const {
        std::vector<SweepRow*> order;
        for (SweepRow& row : rows) order.push_back(&row);
        const auto setting = [&](const SweepRow* row) -> const SweepSetting& {
            return settings_[row->setting];
        };
        std::sort(order.begin(), order.end(), [&](const SweepRow* a, const SweepRow* b) {
            const SweepSetting &one = setting(a), &other = setting(b);
            if (one.batch != other.batch) return one.batch < other.batch;
            return one.round_ms != other.round_ms ? one.round_ms < other.round_ms
                                                  : a->tau.value > b->tau.value;
        });
        const SweepRow* last = nullptr;  // of the front
        for (SweepRow* row : order) {
            const bool first = last == nullptr || setting(last).batch != setting(row).batch;
            row->on_front =
                first || row->tau.value > last->tau.value ||
                (row->tau.value == last->tau.value && setting(row).round_ms == setting(last).round_ms);
            if (row->on_front) last = row;
        }
    }

    const std::vector<SweepSetting>& settings_;
    SettingDraws draws_;
};

}  // namespace

std::string setting_name(const SweepSetting& setting) {
    return setting.head.empty() ? fmt::format("{} @ {}", setting.drafter, setting.tree)
                                : fmt::format("{} x {} @ {}", setting.drafter, setting.head, setting.tree);
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

std::string short_name(const SweepSetting& setting) {
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

std::vector<SweepRow> sweep_table(const std::vector<SweepSetting>& settings,
                                  const BootstrapOptions& options) {
    return Table(settings, options).run();
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
