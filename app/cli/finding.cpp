#include "app/cli/finding.h"

#include <fmt/format.h>

#include "capture/conversations.h"
#include "capture/head_traits.h"
#include "capture/queries.h"
#include "capture/run_setting.h"
#include "stats/head_costs.h"
#include "stats/speedup.h"

namespace draftscope::cli {
namespace {

std::string setting_text(const RunRow& run) {
    std::string out = run.drafter;
    if (!run.head.empty()) out += " with head " + run.head;
    if (run.tree != "none") out += " and tree " + run.tree;
    return out;
}

std::string conversations_text(std::size_t conversations) {
    return conversations == 1 ? std::string("one conversation")
                              : fmt::format("{} conversations", conversations);
}

/// Returns the confidence of a ratio: "95 % interval 1.20x to 1.42x, 12 conversations".
std::string confidence_text(const Estimate& ratio, std::size_t conversations) {
    if (ratio.interval)
        return fmt::format("95 % interval {:.2f}x to {:.2f}x, {}", ratio.interval->low, ratio.interval->high,
                           conversations_text(conversations));
    return conversations_text(conversations) +
           (conversations == 1 ? ", so no interval" : ", too few for an interval");
}

/// Returns "1.31x as fast as plain decoding", qualified if the interval includes 1.
std::string ratio_text(const Estimate& ratio, const std::string& reference) {
    const std::string plain = fmt::format("{:.2f}x as fast as {}", ratio.value, reference);
    return ratio.interval && ratio.interval->contains(1) ? plain + ", which shows no difference" : plain;
}

const HeadComparison* driving_head(const std::vector<HeadComparison>& heads) {
    for (const HeadComparison& head : heads)
        if (head.stats.mode == HeadMode::drive && !is_full_head(head.stats.head)) return &head;
    return nullptr;
}

/// Compares with the full head: measured if it drove the same prompts, else predicted by the cost model.
std::string head_clause(const Snapshot& snapshot, RowId run_id, std::size_t conversations) {
    const std::vector<HeadComparison> heads = head_costs(snapshot, run_id);
    const HeadComparison* head = driving_head(heads);
    if (head == nullptr || (!head->cost.measured && !head->cost.predicted)) return {};
    const bool measured = head->cost.measured.has_value();
    const Estimate& ratio = measured ? *head->cost.measured : *head->cost.predicted;
    return fmt::format("{}{} ({})", measured ? "" : "by the cost model, ",
                       ratio_text(ratio, "with the full head"), confidence_text(ratio, conversations));
}

/// Returns the line on a comparison with the full head that too few calibration rounds do not give; ""
/// without.
std::string missing_reference(const Snapshot& snapshot, RowId run_id) {
    const std::vector<HeadComparison> heads = head_costs(snapshot, run_id, {.resamples = 0});
    const HeadComparison* head = driving_head(heads);
    if (head == nullptr || head->cost.rho_tau || head->no_interval.empty()) return {};
    return fmt::format("against the full head: {}\n", head->no_interval);
}

std::string main_finding(const Snapshot& snapshot, RowId run_id) {
    const RunRow& run = *snapshot.run(run_id);
    const RunTotals totals = run_totals(snapshot, run_id);
    if (totals.rounds == 0) return {};
    const std::string whose = run.synthetic                  ? "With random weights, "
                              : run.acceptance == "replayed" ? "With simulated acceptance, "
                                                             : "";
    const std::size_t conversations = Conversations(snapshot, run_id).count();
    const std::string head = head_clause(snapshot, run_id, conversations);
    const std::string who = whose + setting_text(run);
    if (const auto plain = compute_speedup(snapshot, run_id)) {
        const std::string reference = plain->conversations > 1 ? "plain decoding"
                                      : plain->conversations_of_run > 1
                                          ? "plain decoding on its first conversation"
                                          : "plain decoding on this prompt";
        const bool slower = plain->ratio.interval && plain->ratio.interval->high < 1;
        return fmt::format("{} decoded {}{} ({}){}{}.\n", who, ratio_text(plain->ratio, reference),
                           slower ? ": drafting cost more than it saved" : "",
                           confidence_text(plain->ratio, plain->conversations), head.empty() ? "" : "; ",
                           head);
    }
    constexpr const char* how = "run --baseline N compares with plain decoding";
    if (!head.empty())
        return fmt::format("{} decoded{} {}; {}.\n", who, head.starts_with("by ") ? "," : "", head, how);
    const std::string over = conversations_text(conversations);
    if (totals.tokens_per_second <= 0)
        return fmt::format("{} decoded too few rounds to time ({}).\n", who, totals.rounds);
    if (run.drafter == plain_drafter)
        return fmt::format("{}plain decoding reached {:.1f} tokens per second over {}.\n", whose,
                           totals.tokens_per_second, over);
    return fmt::format("{} reached {:.1f} tokens per second over {}; {}.\n", who, totals.tokens_per_second,
                       over, how);
}

}  // namespace

std::string finding_text(const Snapshot& snapshot, RowId run_id) {
    const std::string finding = main_finding(snapshot, run_id);
    return finding.empty() ? finding : finding + missing_reference(snapshot, run_id);
}

}  // namespace draftscope::cli
