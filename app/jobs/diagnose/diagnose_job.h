#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/jobs/commands/run_config.h"
#include "app/jobs/diagnose/readings.h"
#include "base/job_hooks.h"
#include "base/notes.h"
#include "base/result.h"
#include "capture/acceptance_by_depth.h"
#include "stats/bootstrap.h"

namespace draftscope {

/// Options of `draftscope diagnose`.
struct DiagnoseConfig {
    std::string drafter;    ///< NAME[:PATH[,KEY=VALUE...]]
    std::string recording;  ///< folder; "" = decode the prompts of `target`
    /// The target's files, the prompts, and how they become text. Of a recording, at most `limit`
    /// conversations of `max_new` tokens are replayed (0 = 32, or as many as the texts of `rounds`).
    RunConfig target;
    std::string tree;    ///< a chain; "" = chain=3, or as long as the drafts of `rounds`
    std::string rounds;  ///< capture with another engine's rounds of this checkpoint; "" = none
};

/// A reading of the checkpoint, replayed. Intervals resample conversations.
struct ReadingResult {
    std::vector<OtherValue> changes;  ///< of the checkpoint as given; empty = that itself
    std::string drafter;              ///< spec
    std::optional<Estimate> tau;
    /// Tokens a round if drafts were sampled, from the overlap of both distributions. It tells more than the
    /// greedy drafts of the same texts. Absent for readings far from the best, and without a head.
    std::optional<Estimate> expected;
    std::optional<Estimate> gain;         ///< tau over that of the checkpoint as given
    std::vector<DepthAcceptance> depths;  ///< index = depth - 1
    std::string refused;                  ///< why the drafter cannot be read so; "" = it can
    std::optional<int> parts;  ///< first depth at which the other engine's acceptance differs; 0 = none
    std::string name() const;  ///< "as given" or "layers=3/16/28, recycle=normed"
};
/// The drafter as given along other prompts of the same conversations.
struct OtherPrompts {
    std::string what;  ///< "no generation prompt"
    std::optional<Estimate> tau;
    std::optional<Estimate> gain;  ///< over the chat template's prompts
};
struct DiagnoseReport {
    std::string drafter, source, tree, precision;
    std::size_t conversations = 0;
    std::int64_t tokens = 0;              ///< of the texts
    std::vector<ReadingResult> readings;  ///< best tau first; those that were refused are last
    std::size_t given = 0;                ///< place of the checkpoint as given
    std::optional<std::size_t> fits;      ///< place of the reading that fits; absent = nothing wrong found
    std::string verdict;                  ///< one sentence
    std::vector<OtherPrompts> prompts;    ///< only with the target
    std::vector<DepthAcceptance> engine;  ///< of `rounds`
    Notes same;                           ///< readings that make no difference
    Notes untested;                       ///< readings that could not be tested, and why
    double seconds = 0;
};

/// Replays every reading of the drafter, and pairs of those that do not lose, along the same texts. A reading
/// fits if it is better than the checkpoint as given and than every other reading, beyond chance. Blocks.
Result<DiagnoseReport> run_diagnose(const DiagnoseConfig& config, const JobHooks& hooks);

}  // namespace draftscope
