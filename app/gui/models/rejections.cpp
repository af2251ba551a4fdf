#include "app/gui/models/rejections.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/format_count.h"
#include "capture/token_text.h"

namespace draftscope {
namespace {

constexpr std::size_t shown_missed = 50;

/// Says how often the token was drafted and pruned, and at which mean rank; "" = never.
std::string pruned_text(const MissedToken& token) {
    if (token.pruned == 0) return {};
    const double rank = static_cast<double>(token.rank_sum) / static_cast<double>(token.pruned) + 1;
    return fmt::format("In {} the drafter had it, at mean rank {:.1f}, and pruned it. ", token.pruned, rank);
}

/// Names the causes of more than a tenth of the rounds, the most frequent first.
std::string make_headline(const StopCounts& all) {
    std::vector<std::pair<double, RoundStop>> shares;
    for (int s = 0; s < round_stops; ++s) shares.emplace_back(all.share(RoundStop{s}), RoundStop{s});
    std::ranges::stable_sort(shares, std::greater(), &std::pair<double, RoundStop>::first);
    std::vector<std::string> parts;
    for (const auto& [share, stop] : shares)
        if (share >= 0.1) parts.push_back(fmt::format("{:.0f} % {}", 100 * share, to_text(stop)));
    return fmt::format("{}: {}", format_count(all.all(), "round"), fmt::join(parts, ", "));
}

}  // namespace

const std::vector<StopCounts>& RejectionsModel::groups(RejectionGroup group) const {
    if (group == RejectionGroup::category) return summary.by_category;
    return group == RejectionGroup::position ? summary.by_position : summary.by_depth;
}

RejectionsModel build_rejections(const Snapshot& snapshot, RowId run_id) {
    RejectionsModel model;
    const RunRow* run = snapshot.run(run_id);
    if (run == nullptr) {
        model.empty_text = "No run yet. Why drafts are rejected appears with the first rounds.";
        return model;
    }
    model.summary = summarise_rejections(snapshot, run_id);
    if (model.summary.all.all() == 0) {
        model.empty_text = "No round of this run has a draft tree yet.";
        return model;
    }
    model.headline = make_headline(model.summary.all);
    if (model.summary.left_out > 0)
        model.note = format_count(static_cast<std::int64_t>(model.summary.left_out), "round") +
                     " without a known tree, or not read, left out";
    for (const MissedToken& token : model.summary.missed) {
        if (model.missed.size() == shown_missed) break;
        MissedTokenRow& row = model.missed.emplace_back();
        row.text = token_label(snapshot, run, token.token_id);
        row.token_id = token.token_id;
        row.rounds = token.rounds;
        row.outside_set = token.outside_set;
        row.pruned = token.pruned;
        row.first_round = token.first_round;
        row.tip = fmt::format(
            "id {}: the target chose it in {} that drafted other tokens; in {} of them it was outside the "
            "head's active set. {}A click selects the first one.",
            token.token_id, format_count(token.rounds, "round"), token.outside_set, pruned_text(token));
    }
    return model;
}

std::string describe_stop(RejectionGroup group, const StopCounts& counts, RoundStop stop) {
    const std::string where = group == RejectionGroup::depth      ? "at depth " + counts.label
                              : group == RejectionGroup::category ? counts.label
                                                                  : "from token " + counts.label;
    return fmt::format("{}: {} of {} rounds ({:.1f} %) ended with: {}", where,
                       counts.rounds[static_cast<std::size_t>(stop)], counts.all(), 100 * counts.share(stop),
                       to_text(stop));
}

}  // namespace draftscope
