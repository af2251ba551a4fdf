#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "profiler/bootstrap.h"

/// The acceptance-cost model of draft heads (SlimSpec, arXiv 2605.10453, section 3, eq. 1 to 5) over plain
/// numbers. tau = committed / rounds, the bonus included; rho_tau = tau / tau_full; nu = T_head /
/// T_head,full; kappa = T_head,full / T_non-head, all times per round. It assumes that a head leaves
/// T_non-head unchanged; what that assumption costs is the unexplained difference between measured and
/// predicted speed-up.
namespace draftscope {

/// rho_TPS = rho_tau (1 + kappa) / (1 + nu kappa): tokens per second against the full head (eq. 4).
double predicted_speedup(double rho_tau, double nu, double kappa);
/// rho_tau at which a head of cost `nu` reaches `speedup`; at speedup 1 the break-even line (eq. 5).
double iso_rho_tau(double speedup, double nu, double kappa);
/// The dearest nu at which a head of acceptance `rho_tau` still wins; below 0 it cannot win at any cost, and
/// without a kappa there is nothing to win.
std::optional<double> break_even_nu(double rho_tau, double kappa);

/// What a head did in one conversation. Times in nanoseconds.
struct HeadUnit {
    double rounds = 0, committed = 0;              ///< acceptance: every round
    double timed_rounds = 0, timed_committed = 0;  ///< of them, those whose times count
    double head_ns = 0;                            ///< T_head, exposed, of the timed ones
    double step_ns = 0;                            ///< of the timed ones, head included; 0 = it did not drive

    HeadUnit& operator+=(const HeadUnit& other) { return add(other, 1); }
    HeadUnit& add(const HeadUnit& other, double times);
};
/// The same unit under the head in question, the full head and the head that drove. Heads that were not
/// evaluated in the same rounds are compared through the driving one, which was there in all of them:
/// rho_tau = (tau_head / tau_drive in the rounds of `head`) x (tau_drive / tau_full in the rounds of `full`).
struct PairedUnit {
    HeadUnit head, full;
    HeadUnit drive_at_head, drive_at_full;  ///< the driving head there; without rounds = not known
    HeadUnit base;  ///< the driven rounds beside which T_head of `full` was measured: T_non-head
    /// The measured speed-up: the full head where it drove a run, and the head in question on the same texts.
    HeadUnit full_run, head_run;
};

/// One head against the full one. A quantity is absent where its numbers are.
struct AcceptanceCost {
    std::optional<Estimate> tau, rho_tau, nu, kappa;
    std::optional<Estimate> predicted;    ///< rho_TPS by eq. 4
    std::optional<Estimate> measured;     ///< rho_TPS by step times, when both heads drove the same texts
    std::optional<Estimate> unexplained;  ///< measured - predicted
    std::optional<double> break_even_rho_tau;  ///< at this nu and kappa
    std::optional<double> break_even_nu;       ///< at this rho_tau and kappa
    std::size_t conversations = 0;  ///< in which both heads were: what the comparison can be resampled from
};

/// Sums over conversations, then ratios; intervals by drawing conversations, both heads of one together. tau
/// counts the conversations of the head, everything else those of both.
AcceptanceCost acceptance_cost(std::span<const PairedUnit> units, const BootstrapOptions& options = {});

}  // namespace draftscope
