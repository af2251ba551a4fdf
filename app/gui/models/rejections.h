#pragma once

#include <string>
#include <vector>

#include "capture/rejections.h"

/// Model of the Rejections panel: why the rounds of a run ended, and the tokens that were missed most.
namespace draftscope {

/// By what the panel's bars are grouped.
enum class RejectionGroup { depth, category, position };

struct MissedTokenRow {
    std::string text;
    std::string tip;
    TokenId token_id = no_token;
    std::int64_t rounds = 0, outside_set = 0, pruned = 0;
    std::size_t first_round = 0;  ///< index into Snapshot::rounds
};
struct RejectionsModel {
    std::string empty_text;  ///< why there is nothing to show; "" = there is
    std::string headline;    ///< the largest causes in a sentence
    std::string note;        ///< rounds that are not in the figures; "" = none
    RejectionSummary summary;
    std::vector<MissedTokenRow> missed;  ///< the most often missed ones
    const std::vector<StopCounts>& groups(RejectionGroup group) const;
};
/// Builds the model of a whole run.
RejectionsModel build_rejections(const Snapshot& snapshot, RowId run_id);

/// Returns "at depth 2: 40 of 120 rounds (33.3 %) ended with another token drafted".
std::string describe_stop(RejectionGroup group, const StopCounts& counts, RoundStop stop);

}  // namespace draftscope
