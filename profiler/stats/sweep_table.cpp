#include "profiler/stats/sweep_table.h"

#include <algorithm>
#include <cmath>

namespace draftscope {
namespace {

SweepUnit sum_of(const std::vector<SweepUnit>& units, std::span<const std::uint32_t> times_drawn) {
    SweepUnit sum;
    for (std::size_t u = 0; u < units.size(); ++u) {
        const double times = times_drawn.empty() ? 1 : times_drawn[u];
        sum.rounds += times * units[u].rounds;
        sum.committed += times * units[u].committed;
    }
    return sum;
}

/// The resampled taus of one setting, in the order of the draws. They are shared by all its figures, so that
/// two settings are compared on the same draws.
using Draws = std::vector<double>;

class Table {
  public:
    Table(const std::vector<SweepSetting>& settings, const BootstrapOptions& options)
        : settings_(settings), options_(options) {}

    std::vector<SweepRow> run() {
        draw();
        std::vector<SweepRow> rows;
        for (std::size_t s = 0; s < settings_.size(); ++s)
            if (settings_[s].total().rounds > 0 && settings_[s].round_ms > 0) rows.push_back(row(s));
        std::stable_sort(rows.begin(), rows.end(), [&](const SweepRow& a, const SweepRow& b) {
            const int one = settings_[a.setting].batch, other = settings_[b.setting].batch;
            return one != other ? one < other : a.tokens_per_second.value > b.tokens_per_second.value;
        });
        mark(rows);
        return rows;
    }

  private:
    void draw() {
        taus_.resize(settings_.size());
        conversations_ = 0;
        for (const SweepSetting& setting : settings_)
            conversations_ = std::max(conversations_, setting.units.size());
        if (conversations_ < min_conversations) return;
        for_each_resample(conversations_, options_, [&](std::span<const std::uint32_t> times_drawn) {
            for (std::size_t s = 0; s < settings_.size(); ++s)
                taus_[s].push_back(sum_of(settings_[s].units, times_drawn.first(settings_[s].units.size()))
                                       .tau()
                                       .value_or(0));
        });
    }

    /// Returns value x factor(tau) with the spread of the draws and a relative error.
    Estimate estimate(double value, const Draws& draws, double relative_error) const {
        BootstrapOptions options = options_;
        options.resolution = relative_error;
        Estimate out{value, {}};
        if (const auto spread = estimate_spread(value, draws, conversations_, options))
            out.interval = spread->interval(value);
        return out;
    }

    SweepRow row(std::size_t s) const {
        const SweepSetting& setting = settings_[s];
        const double tau = *setting.total().tau();
        const double error = setting.cost_error.value_or(0);
        const auto scaled = [&](double factor) {
            Draws draws = taus_[s];
            for (double& one : draws) one *= factor;
            return draws;
        };
        SweepRow out;
        out.setting = s;
        out.tau = estimate(tau, taus_[s], 0);
        const double speed = 1e3 * setting.batch / setting.round_ms;
        out.tokens_per_second = estimate(tau * speed, scaled(speed), error);
        const double gain = setting.plain_ms / setting.round_ms;
        out.speedup = estimate(tau * gain, scaled(gain), error);
        if (setting.full) out.against_full = ratio(s, *setting.full);
        return out;
    }

    /// Returns the speed of one setting over that of another of the same batch, on the same draws.
    std::optional<Estimate> ratio(std::size_t s, std::size_t base) const {
        const SweepSetting &setting = settings_[s], &other = settings_[base];
        const auto tau = setting.total().tau(), base_tau = other.total().tau();
        if (!tau || !base_tau || setting.round_ms <= 0 || other.round_ms <= 0) return std::nullopt;
        const double time = other.round_ms / setting.round_ms;
        Draws draws;
        for (std::size_t d = 0; d < taus_[s].size(); ++d)
            if (taus_[base][d] > 0) draws.push_back(time * taus_[s][d] / taus_[base][d]);
        const double error =
            s == base ? 0 : std::hypot(setting.cost_error.value_or(0), other.cost_error.value_or(0));
        return estimate(time * *tau / *base_tau, draws, error);
    }

    void mark(std::vector<SweepRow>& rows) const {
        const SweepRow* best = nullptr;
        for (SweepRow& row : rows) {
            const SweepSetting& mine = settings_[row.setting];
            if (best == nullptr || settings_[best->setting].batch != mine.batch) best = &row;
            const auto against = ratio(row.setting, best->setting);
            if (against && against->interval)
                row.ties_with_best = &row == best || against->interval->contains(1);
            row.on_front = std::none_of(rows.begin(), rows.end(), [&](const SweepRow& other) {
                const SweepSetting& theirs = settings_[other.setting];
                const bool as_good = theirs.round_ms <= mine.round_ms && other.tau.value >= row.tau.value;
                const bool better = theirs.round_ms < mine.round_ms || other.tau.value > row.tau.value;
                return theirs.batch == mine.batch && as_good && better;
            });
        }
    }

    const std::vector<SweepSetting>& settings_;
    const BootstrapOptions& options_;
    std::vector<Draws> taus_;
    std::size_t conversations_ = 0;
};

}  // namespace

SweepUnit SweepSetting::total() const {
    return sum_of(units, {});
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
