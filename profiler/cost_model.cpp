#include "profiler/cost_model.h"

#include "base/rng.h"

namespace draftscope {
namespace {

/// The quantities of one sample of units.
struct Point {
    std::optional<double> tau, rho_tau, nu, kappa, predicted, measured, unexplained;
};

using Quantity = std::optional<double> Point::*;
constexpr Quantity quantities[] = {&Point::tau,       &Point::rho_tau,  &Point::nu,         &Point::kappa,
                                   &Point::predicted, &Point::measured, &Point::unexplained};

std::optional<double> ratio(std::optional<double> a, std::optional<double> b) {
    if (!a || !b || *b <= 0) return std::nullopt;
    return *a / *b;
}

std::optional<double> positive(double value) {
    return value > 0 ? std::optional<double>(value) : std::nullopt;
}

/// Sums over units.
struct Sums {
    PairedUnit all;
    HeadUnit head_of_full_run;  ///< the head in question in the units that the full head drove too

    void add(const PairedUnit& unit) {
        all.head += unit.head;
        all.full += unit.full;
        all.drive_at_head += unit.drive_at_head;
        all.drive_at_full += unit.drive_at_full;
        all.base += unit.base;
        all.full_run += unit.full_run;
        if (unit.full_run.step_ns > 0) head_of_full_run += unit.head;
    }
};

std::optional<double> tau_of(const HeadUnit& sum) {
    return ratio(sum.committed, positive(sum.rounds));
}

std::optional<double> head_ns_of(const HeadUnit& sum) {
    return ratio(positive(sum.head_ns), positive(sum.timed_rounds));
}

/// T_non-head per round of a head that drove.
std::optional<double> non_head(const HeadUnit& sum) {
    if (sum.step_ns <= 0 || sum.timed_rounds <= 0) return std::nullopt;
    return (sum.step_ns - sum.head_ns) / sum.timed_rounds;
}

std::optional<double> speed_of(const HeadUnit& sum) {
    return ratio(positive(sum.timed_committed), positive(sum.step_ns));
}

Point point_of(const Sums& sums) {
    const PairedUnit& all = sums.all;
    Point point;
    point.tau = tau_of(all.head);
    point.rho_tau = ratio(point.tau, tau_of(all.full));
    if (const auto through = ratio(tau_of(all.drive_at_full), tau_of(all.drive_at_head));
        through && point.rho_tau)
        *point.rho_tau *= *through;
    const auto full_head_ns = head_ns_of(all.full);
    point.nu = ratio(head_ns_of(all.head), full_head_ns);
    point.kappa = ratio(full_head_ns, non_head(all.base));
    if (point.rho_tau && point.nu && point.kappa)
        point.predicted = predicted_speedup(*point.rho_tau, *point.nu, *point.kappa);
    point.measured = ratio(speed_of(sums.head_of_full_run), speed_of(all.full_run));
    if (point.measured && point.predicted) point.unexplained = *point.measured - *point.predicted;
    return point;
}

}  // namespace

double predicted_speedup(double rho_tau, double nu, double kappa) {
    return rho_tau * (1 + kappa) / (1 + nu * kappa);
}

double iso_rho_tau(double speedup, double nu, double kappa) {
    return speedup * (1 + nu * kappa) / (1 + kappa);
}

std::optional<double> break_even_nu(double rho_tau, double kappa) {
    if (kappa <= 0) return std::nullopt;
    return (rho_tau * (1 + kappa) - 1) / kappa;
}

HeadUnit& HeadUnit::operator+=(const HeadUnit& other) {
    rounds += other.rounds;
    committed += other.committed;
    timed_rounds += other.timed_rounds;
    timed_committed += other.timed_committed;
    head_ns += other.head_ns;
    step_ns += other.step_ns;
    return *this;
}

AcceptanceCost acceptance_cost(std::span<const PairedUnit> units, const CostModelOptions& options) {
    Sums sums;
    std::size_t with_head = 0, with_full = 0;
    for (const PairedUnit& unit : units) {
        sums.add(unit);
        with_head += unit.head.rounds > 0 ? 1 : 0;
        with_full += unit.full.rounds > 0 ? 1 : 0;
    }
    const Point point = point_of(sums);
    std::vector<double> samples[std::size(quantities)];
    if (with_head >= options.least_units) {
        Rng rng(options.seed, units.size());
        for (int b = 0; b < options.resamples; ++b) {
            Sums drawn;
            for (std::size_t i = 0; i < units.size(); ++i)
                drawn.add(units[rng.below(static_cast<std::uint32_t>(units.size()))]);
            const Point one = point_of(drawn);
            for (std::size_t q = 0; q < std::size(quantities); ++q)
                if (const auto value = one.*quantities[q]) samples[q].push_back(*value);
        }
    }
    const auto estimate = [&](std::size_t q) -> std::optional<Estimate> {
        const auto value = point.*quantities[q];
        if (!value) return std::nullopt;
        // All but tau compare with the full head: of it, too, there must be enough.
        if (q > 0 && with_full < options.least_units) return Estimate{*value, std::nullopt};
        return Estimate{*value, percentile_interval(samples[q], options.resamples)};
    };
    AcceptanceCost out;
    out.tau = estimate(0);
    out.rho_tau = estimate(1);
    out.nu = estimate(2);
    out.kappa = estimate(3);
    out.predicted = estimate(4);
    out.measured = estimate(5);
    out.unexplained = estimate(6);
    if (point.kappa && point.nu) out.break_even_rho_tau = iso_rho_tau(1, *point.nu, *point.kappa);
    if (point.kappa && point.rho_tau) out.break_even_nu = break_even_nu(*point.rho_tau, *point.kappa);
    return out;
}

}  // namespace draftscope
