#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "stats/bootstrap.h"

/// The acceptance-cost model of draft heads (SlimSpec, arXiv 2605.10453, section 3, eq. 1 to 5). tau =
/// committed / rounds, bonus included; rho_tau = tau / tau_full; nu = T_head / T_head,full; kappa =
/// T_head,full / T_non-head. All times are per round. The model assumes that a head leaves T_non-head
/// unchanged. The unexplained difference between measured and predicted speed-up shows the error of that
/// assumption.
namespace draftscope {

/// rho_TPS = rho_tau (1 + kappa) / (1 + nu kappa): tokens per second against the full head (eq. 4).
double predicted_speedup(double rho_tau, double nu, double kappa);
/// Returns the rho_tau at which a head of cost `nu` reaches `speedup`; at speedup 1 the break-even line (eq.
/// 5).
double iso_rho_tau(double speedup, double nu, double kappa);
/// Returns the largest nu at which a head of acceptance `rho_tau` breaks even. Below 0 it cannot win at any
/// cost; absent if kappa is 0.
std::optional<double> break_even_nu(double rho_tau, double kappa);

/// Returns the expected tokens of a round with a chain of `drafts` drafts, bonus included. Each draft is
/// accepted with probability `alpha`, independently of the others: (1 - alpha^(drafts + 1)) / (1 - alpha)
/// (DynaSpec, arXiv 2510.13847, eq. 1, from Leviathan et al. 2023).
double expected_tokens(double alpha, int drafts);
/// Returns the speed of such rounds relative to autoregressive decoding: expected_tokens() / (drafts *
/// draft_cost + verify_cost) (eq. 2). Costs are those of one draft and of one verification, in units of one
/// target pass of autoregressive decoding.
double speculation_speedup(double alpha, int drafts, double draft_cost, double verify_cost);

/// Acceptance and times of a head in one conversation. Times in nanoseconds.
struct HeadSample {
    double rounds = 0, committed = 0;              ///< over every round, for acceptance
    double timed_rounds = 0, timed_committed = 0;  ///< over the rounds whose times count
    double head_ns = 0;                            ///< exposed T_head of the timed rounds
    double step_ns = 0;   ///< time of the timed rounds, head included; 0 = the head did not drive
    double accepted = 0;  ///< drafts over every round, also those beyond the text's end
    double unsampled_rounds = 0, unsampled_ns = 0;  ///< the timed rounds without spans: T_head is unknown

    HeadSample& operator+=(const HeadSample& other) { return add(other, 1); }
    HeadSample& add(const HeadSample& other, double times);
};
/// The same unit under the head in question, the full head and the driving head. Heads evaluated in different
/// rounds are compared through the driving head, which ran in all of them. rho_tau = (tau_head / tau_drive in
/// the rounds of `head`) x (tau_drive / tau_full in the rounds of `full`).
struct PairedSample {
    HeadSample head, full;
    HeadSample drive_at_head, drive_at_full;  ///< driving head in the rounds of each; no rounds = unknown
    HeadSample base;  ///< driven rounds in which T_head of `full` was measured; gives T_non-head
    /// Inputs of the measured speed-up: runs that each head drove, on the same texts.
    HeadSample full_run, head_run;
};

/// Comparison of one head with the full head. A quantity is absent if its inputs are.
struct AcceptanceCost {
    std::optional<Estimate> tau, rho_tau, nu, kappa;
    std::optional<Estimate> predicted;    ///< rho_TPS by eq. 4
    std::optional<Estimate> measured;     ///< rho_TPS from step times, if both heads drove the same texts
    std::optional<Estimate> unexplained;  ///< measured - predicted
    std::optional<double> break_even_rho_tau;  ///< at this nu and kappa
    std::optional<double> break_even_nu;       ///< at this rho_tau and kappa
    std::size_t conversations = 0;             ///< conversations with both heads: the resampling units
};

/// Computes the ratios of sums over conversations. Intervals resample conversations, with both heads of one
/// together. tau uses the conversations of the head; all other quantities use those of both.
AcceptanceCost acceptance_cost(std::span<const PairedSample> units, const BootstrapOptions& options = {});

}  // namespace draftscope
