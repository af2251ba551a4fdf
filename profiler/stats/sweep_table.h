#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "profiler/stats/bootstrap.h"

/// Ranks drafting settings by predicted speed: acceptance from a recording, time of a round from a machine
/// profile. Pure maths.
namespace draftscope {

/// Acceptance of a setting in one conversation, or in several.
struct SweepUnit {
    double rounds = 0, committed = 0;
    std::optional<double> tau() const {
        return rounds > 0 ? std::optional(committed / rounds) : std::nullopt;
    }
};
/// A setting whose acceptance and cost are known.
struct SweepSetting {
    std::string drafter, head, tree;  ///< as for `run`; head "" = the drafter uses none
    int batch = 1;
    std::vector<SweepUnit> units;  ///< by conversation, the same ones for all settings
    double round_ms = 0;           ///< predicted time of a step
    double plain_ms = 0;           ///< predicted time of a step without a drafter, at the same batch
    /// Relative error of the predicted ratio of both times; absent = unknown.
    std::optional<double> cost_error;
    bool extrapolated = false;  ///< the profile was not measured at such a size
    bool exact = true;          ///< false: the acceptance is an estimate
    /// Place of the same drafter, tree and batch with the full head in the list of settings.
    std::optional<std::size_t> full;

    SweepUnit total() const;
};

/// Predicted figures of a setting. Intervals resample conversations and include the profile's error.
struct SweepRow {
    std::size_t setting = 0;  ///< place in the list of settings
    Estimate tau, tokens_per_second;
    Estimate speedup;                      ///< over decoding without a drafter
    std::optional<Estimate> against_full;  ///< speed over that of `full`
    /// No setting of the same batch accepts as much in less time.
    bool on_front = false;
    /// Not distinguishable from the fastest setting of its batch: the interval of the ratio holds 1. Absent
    /// without an interval.
    std::optional<bool> ties_with_best;
};
/// Returns the rows of settings with rounds, fastest first by batch in ascending order.
std::vector<SweepRow> sweep_table(const std::vector<SweepSetting>& settings,
                                  const BootstrapOptions& options = {});

/// Expands alternatives: "fr-spec:v=2048|4096" gives "fr-spec:v=2048" and "fr-spec:v=4096"; several
/// parameters give all combinations.
std::vector<std::string> expand_alternatives(const std::string& spec);

}  // namespace draftscope
