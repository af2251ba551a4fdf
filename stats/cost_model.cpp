#include "stats/cost_model.h"

#include <algorithm>

namespace draftscope {
namespace {

/// The quantities of one sample of units.
struct Point {
    std::optional<double> tau, rho_tau, nu, kappa, predicted, measured, unexplained;
};

using Quantity = std::optional<double> Point::*;
struct QuantityEntry {
    Quantity of;
    std::optional<Estimate> AcceptanceCost::*out;
    bool counts_rounds;  ///< the value is a ratio of whole numbers of rounds
};
constexpr QuantityEntry quantities[] = {{&Point::tau, &AcceptanceCost::tau, true},
                                        {&Point::rho_tau, &AcceptanceCost::rho_tau, true},
                                        {&Point::nu, &AcceptanceCost::nu, false},
                                        {&Point::kappa, &AcceptanceCost::kappa, false},
                                        {&Point::predicted, &AcceptanceCost::predicted, true},
                                        {&Point::measured, &AcceptanceCost::measured, true},
                                        {&Point::unexplained, &AcceptanceCost::unexplained, false}};

std::optional<double> ratio(std::optional<double> a, std::optional<double> b) {
    if (!a || !b || *b <= 0) return std::nullopt;
    return *a / *b;
}

std::optional<double> positive(double value) {
    return value > 0 ? std::optional<double>(value) : std::nullopt;
}

/// Adds a unit `times` times.
void add(PairedSample& sum, const PairedSample& unit, double times) {
    using P = PairedSample;
    for (HeadSample P::*const part :
         {&P::head, &P::full, &P::drive_at_head, &P::drive_at_full, &P::base, &P::full_run, &P::head_run})
        (sum.*part).add(unit.*part, times);
}

std::optional<double> compute_tau(const HeadSample& sum) {
    return ratio(sum.committed, positive(sum.rounds));
}

std::optional<double> head_ns_per_round(const HeadSample& sum) {
    return ratio(positive(sum.head_ns), positive(sum.timed_rounds - sum.unsampled_rounds));
}

/// T_non-head per round of a driving head.
std::optional<double> non_head(const HeadSample& sum) {
    const double rounds = sum.timed_rounds - sum.unsampled_rounds, ns = sum.step_ns - sum.unsampled_ns;
    if (ns <= 0 || rounds <= 0) return std::nullopt;
    return (ns - sum.head_ns) / rounds;
}

std::optional<double> token_speed(const HeadSample& sum) {
    return ratio(positive(sum.timed_committed), positive(sum.step_ns));
}

/// Returns the quantities of a sum over units.
Point compute_point(const PairedSample& all) {
    Point point;
    point.tau = compute_tau(all.head);
    point.rho_tau = ratio(point.tau, compute_tau(all.full));
    if (const auto through = ratio(compute_tau(all.drive_at_full), compute_tau(all.drive_at_head));
        through && point.rho_tau)
        *point.rho_tau *= *through;
    const auto full_head_ns = head_ns_per_round(all.full);
    point.nu = ratio(head_ns_per_round(all.head), full_head_ns);
    point.kappa = ratio(full_head_ns, non_head(all.base));
    if (point.rho_tau && point.nu && point.kappa)
        point.predicted = predicted_speedup(*point.rho_tau, *point.nu, *point.kappa);
    point.measured = ratio(token_speed(all.head_run), token_speed(all.full_run));
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

double expected_tokens(double alpha, int drafts) {
    double sum = 1, power = 1;
    for (int i = 0; i < drafts; ++i) sum += power *= alpha;
    return sum;
}

double speculation_speedup(double alpha, int drafts, double draft_cost, double verify_cost) {
    return expected_tokens(alpha, drafts) / (drafts * draft_cost + verify_cost);
}

HeadSample& HeadSample::add(const HeadSample& other, double times) {
    rounds += times * other.rounds;
    committed += times * other.committed;
    timed_rounds += times * other.timed_rounds;
    timed_committed += times * other.timed_committed;
    head_ns += times * other.head_ns;
    step_ns += times * other.step_ns;
    accepted += times * other.accepted;
    unsampled_rounds += times * other.unsampled_rounds;
    unsampled_ns += times * other.unsampled_ns;
    return *this;
}

AcceptanceCost acceptance_cost(std::span<const PairedSample> units, const BootstrapOptions& options) {
    PairedSample sums;
    AcceptanceCost out;
    std::size_t with_head = 0;
    for (const PairedSample& unit : units) {
        add(sums, unit, 1);
        with_head += unit.head.rounds > 0 ? 1 : 0;
        out.conversations += unit.head.rounds > 0 && unit.full.rounds > 0 ? 1 : 0;
    }
    const Point point = compute_point(sums);
    std::vector<double> resampled[std::size(quantities)];
    if (with_head >= min_conversations)
        for_each_resample(units.size(), options, [&](std::span<const std::uint32_t> times_drawn) {
            PairedSample drawn;
            for (std::size_t u = 0; u < units.size(); ++u)
                if (times_drawn[u] > 0) add(drawn, units[u], times_drawn[u]);
            const Point one = compute_point(drawn);
            for (std::size_t q = 0; q < std::size(quantities); ++q)
                if (const auto value = one.*quantities[q].of) resampled[q].push_back(*value);
        });
    const double rounds = sums.head.rounds, full_rounds = sums.full.rounds;
    for (std::size_t q = 0; q < std::size(quantities); ++q) {
        const QuantityEntry& quantity = quantities[q];
        const auto value = point.*quantity.of;
        if (!value) continue;
        const bool alone = quantity.of == &Point::tau;
        BootstrapOptions own = options;
        if (quantity.counts_rounds) own.resolution = 1 / (alone ? rounds : std::min(rounds, full_rounds));
        Estimate estimate{*value, {}};
        if (const auto spread =
                estimate_spread(*value, resampled[q], alone ? with_head : out.conversations, own))
            estimate.interval = spread->interval(*value);
        out.*quantity.out = estimate;
    }
    if (point.kappa && point.nu) out.break_even_rho_tau = iso_rho_tau(1, *point.nu, *point.kappa);
    if (point.kappa && point.rho_tau) out.break_even_nu = break_even_nu(*point.rho_tau, *point.kappa);
    return out;
}

}  // namespace draftscope
