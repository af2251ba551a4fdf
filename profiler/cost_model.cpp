#include "profiler/cost_model.h"

#include <algorithm>

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

void add(HeadUnit& sum, const HeadUnit& unit) {
    sum.rounds += unit.rounds;
    sum.committed += unit.committed;
    sum.head_ns += unit.head_ns;
    sum.step_ns += unit.step_ns;
}

std::optional<double> positive(double value) {
    return value > 0 ? std::optional<double>(value) : std::nullopt;
}

/// T_non-head per round of a head that drove.
std::optional<double> non_head(const HeadUnit& sum) {
    if (sum.step_ns <= 0 || sum.rounds <= 0) return std::nullopt;
    return (sum.step_ns - sum.head_ns) / sum.rounds;
}

Point point_of(const HeadUnit& head, const HeadUnit& full, const std::optional<double>& given_non_head) {
    Point point;
    point.tau = ratio(head.committed, positive(head.rounds));
    point.rho_tau = ratio(point.tau, ratio(full.committed, positive(full.rounds)));
    const auto full_head_ns = ratio(positive(full.head_ns), positive(full.rounds));
    point.nu = ratio(ratio(positive(head.head_ns), positive(head.rounds)), full_head_ns);
    auto rest = non_head(full);
    if (!rest) rest = non_head(head);
    if (!rest) rest = given_non_head;
    point.kappa = ratio(full_head_ns, rest);
    if (point.rho_tau && point.nu && point.kappa)
        point.predicted = predicted_speedup(*point.rho_tau, *point.nu, *point.kappa);
    point.measured = ratio(ratio(positive(head.committed), positive(head.step_ns)),
                           ratio(positive(full.committed), positive(full.step_ns)));
    if (point.measured && point.predicted) point.unexplained = *point.measured - *point.predicted;
    return point;
}

std::optional<Interval> percentile_interval(std::vector<double>& values, int resamples) {
    if (values.size() * 2 < static_cast<std::size_t>(resamples)) return std::nullopt;
    std::sort(values.begin(), values.end());
    const auto at = [&](double q) {
        return values[static_cast<std::size_t>(q * static_cast<double>(values.size() - 1) + 0.5)];
    };
    return Interval{at(0.025), at(0.975)};
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

AcceptanceCost acceptance_cost(std::span<const PairedUnit> units, const CostModelOptions& options) {
    PairedUnit sum;
    for (const PairedUnit& unit : units) {
        add(sum.head, unit.head);
        add(sum.full, unit.full);
    }
    const Point point = point_of(sum.head, sum.full, options.non_head_ns);
    std::vector<double> samples[std::size(quantities)];
    if (units.size() >= options.least_units) {
        Rng rng(options.seed, units.size());
        for (int b = 0; b < options.resamples; ++b) {
            PairedUnit drawn;
            for (std::size_t i = 0; i < units.size(); ++i) {
                const PairedUnit& unit = units[rng.below(static_cast<std::uint32_t>(units.size()))];
                add(drawn.head, unit.head);
                add(drawn.full, unit.full);
            }
            const Point one = point_of(drawn.head, drawn.full, options.non_head_ns);
            for (std::size_t q = 0; q < std::size(quantities); ++q)
                if (const auto value = one.*quantities[q]) samples[q].push_back(*value);
        }
    }
    const auto estimate = [&](std::size_t q) -> std::optional<Estimate> {
        const auto value = point.*quantities[q];
        if (!value) return std::nullopt;
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
