#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>

#include "base/rng.h"
#include "capture/quantile.h"
#include "stats/cost_model.h"

/// Measures how often 95 % intervals contain the true value. Runs are drawn from a pool of recorded
/// conversations, and the pool's own value is the truth. docs/decisions/0022 has the table.
namespace draftscope {
namespace {

/// A demo conversation decoded with fr-spec and with the full head.
struct Recorded {
    PairedSample two_runs;    ///< the full head in a separate run
    PairedSample calibrated;  ///< the full head in calibration rounds
    std::vector<double> step_us;
};

std::vector<Recorded> read_pool() {
    std::ifstream file(DS_SOURCE_DIR "/tests/unit/stats/data/demo_conversations.csv");
    std::string line, cell;
    std::vector<std::string> names;
    std::getline(file, line);
    for (std::istringstream header(line); std::getline(header, cell, ',');) names.push_back(cell);
    std::vector<Recorded> pool;
    while (std::getline(file, line)) {
        std::map<std::string, std::string> row;
        std::istringstream cells(line);
        for (const std::string& name : names) std::getline(cells, row[name], ',');
        const auto number = [&](const std::string& name) { return std::stod(row.at(name)); };
        const auto unit = [&](const std::string& of) {
            return HeadSample{number(of + "_rounds"),       number(of + "_committed"),
                              number(of + "_timed_rounds"), number(of + "_timed_committed"),
                              number(of + "_draft_ns"),     number(of + "_step_ns")};
        };
        Recorded one;
        one.two_runs.head = one.two_runs.head_run = one.calibrated.head = unit("head");
        one.two_runs.full = one.two_runs.full_run = one.two_runs.base = unit("full");
        one.calibrated.drive_at_head = one.calibrated.base = one.calibrated.head;
        const double rounds = number("cal_rounds");
        one.calibrated.full = {rounds, number("cal_full_committed"), rounds, 0, number("cal_draft_ns"), 0};
        one.calibrated.drive_at_full = {rounds, number("cal_committed")};
        std::istringstream steps(row.at("counted_us").substr(1));
        for (double us = 0; steps >> us;) one.step_us.push_back(us);
        pool.push_back(std::move(one));
    }
    return pool;
}

/// Returns 200, or DRAFTSCOPE_COVERAGE_RUNS: the table of docs/decisions/0022 used 2000.
int runs() {
    const char* wanted = std::getenv("DRAFTSCOPE_COVERAGE_RUNS");
    return wanted != nullptr ? std::atoi(wanted) : 200;
}

using EstimateOf = std::function<std::optional<Estimate>(const std::vector<Recorded>&)>;

/// Returns the share of runs whose interval contains the pool's value.
double coverage(const std::vector<Recorded>& pool, std::size_t conversations, const EstimateOf& of) {
    const double truth = of(pool)->value;
    int held = 0;
    Rng rng(7, conversations);
    for (int run = 0; run < runs(); ++run) {
        std::vector<Recorded> drawn;
        for (std::size_t c = 0; c < conversations; ++c)
            drawn.push_back(pool[rng.below(static_cast<std::uint32_t>(pool.size()))]);
        const auto estimate = of(drawn);
        if (!estimate || !estimate->interval) return -1;
        held += estimate->interval->contains(truth) ? 1 : 0;
    }
    return held / static_cast<double>(runs());
}

EstimateOf estimate_cost(PairedSample Recorded::*units, std::optional<Estimate> AcceptanceCost::*quantity) {
    return [=](const std::vector<Recorded>& conversations) {
        std::vector<PairedSample> list;
        for (const Recorded& one : conversations) list.push_back(one.*units);
        return acceptance_cost(list).*quantity;
    };
}

std::optional<Estimate> median_step(const std::vector<Recorded>& conversations) {
    std::vector<double> values;
    std::vector<std::uint32_t> unit_of;
    for (std::uint32_t c = 0; c < conversations.size(); ++c)
        for (const double us : conversations[c].step_us) {
            values.push_back(us);
            unit_of.push_back(c);
        }
    Estimate out{.value = quantile(values, 0.5),
                 .interval = median_interval(values, unit_of, conversations.size())};
    return out;
}

class IntervalCoverage : public ::testing::TestWithParam<std::size_t> {};

TEST_P(IntervalCoverage, IsNominal) {
    static const std::vector<Recorded> pool = read_pool();
    ASSERT_GE(pool.size(), 60u);
    const struct {
        const char* name;
        EstimateOf of;
        double highest;
    } statistics[] = {
        {"tau", estimate_cost(&Recorded::two_runs, &AcceptanceCost::tau), 0.99},
        {"rho_tau", estimate_cost(&Recorded::two_runs, &AcceptanceCost::rho_tau), 0.99},
        {"nu", estimate_cost(&Recorded::two_runs, &AcceptanceCost::nu), 0.99},
        {"measured speed-up", estimate_cost(&Recorded::two_runs, &AcceptanceCost::measured), 0.99},
        {"median step", median_step, 0.99},
        // The heads differ in few rounds, so the resolution of one round makes these intervals wide.
        {"rho_tau by calibration", estimate_cost(&Recorded::calibrated, &AcceptanceCost::rho_tau), 1},
        {"nu by calibration", estimate_cost(&Recorded::calibrated, &AcceptanceCost::nu), 0.99},
    };
    // The machine was slowed during part of the full head's run, which few conversations do not show.
    const double kappa =
        coverage(pool, GetParam(), estimate_cost(&Recorded::two_runs, &AcceptanceCost::kappa));
    std::printf("%2zu conversations, kappa: %.3f\n", GetParam(), kappa);
    EXPECT_GE(kappa, 0.75);
    for (const auto& [name, of, highest] : statistics) {
        const double share = coverage(pool, GetParam(), of);
        EXPECT_GE(share, 0.90) << name;
        EXPECT_LE(share, highest) << name;
        std::printf("%2zu conversations, %s: %.3f\n", GetParam(), name, share);
    }
}

INSTANTIATE_TEST_SUITE_P(Conversations, IntervalCoverage, ::testing::Values(6, 12, 24, 48));

}  // namespace
}  // namespace draftscope
