#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "capture/acceptance_by_depth.h"
#include "engine/replay/draft_overlap.h"
#include "engine/shadow/replay_runner.h"

namespace draftscope {

/// Totals over the rounds of one head.
struct ReplayStats {
    std::int64_t rounds = 0, draft_tokens = 0, accepted = 0, committed = 0, covered = 0;
    std::vector<std::int64_t> histogram;  ///< number of rounds by accepted drafts
    std::vector<DepthAcceptance> depths;  ///< index = depth - 1
    double covered_prob_sum = 0, active_rows_sum = 0, row_tokens_sum = 0, bytes_sum = 0, flops_sum = 0;
    std::int64_t covered_prob_rounds = 0;
    std::vector<LevelOverlap> overlaps;  ///< by level of the chains

    void add(std::span<const LevelOverlap> levels);
    /// Mean alpha of all positions, and of each level; absent and empty if not computed.
    std::optional<double> alpha() const;
    std::vector<double> alpha_per_depth() const;
    void add(const HeadRound& round);
    void add(std::span<const HeadRound> list) {
        for (const HeadRound& round : list) add(round);
    }
    /// Committed tokens per round, including the bonus; absent without rounds.
    std::optional<double> tau() const { return ratio(committed, rounds); }
    /// 1 + accepted drafts per round, as in SlimSpec's eq. 1: drafts beyond the text's end count, too.
    std::optional<double> tau_unclipped() const { return ratio(rounds + accepted, rounds); }
    std::optional<double> coverage() const { return ratio(covered, committed); }
    std::optional<double> covered_mass() const;
    double active_rows() const { return ratio(active_rows_sum, rounds).value_or(0); }
    double row_tokens() const { return ratio(row_tokens_sum, rounds).value_or(0); }
    double bytes_per_round() const { return ratio(bytes_sum, rounds).value_or(0); }
    double flops_per_round() const { return ratio(flops_sum, rounds).value_or(0); }
    /// Acceptance rates; index = depth - 1.
    std::vector<double> per_depth() const;

  private:
    template <typename T>
    static std::optional<double> ratio(T a, std::int64_t b) {
        if (b == 0) return std::nullopt;
        return static_cast<double>(a) / static_cast<double>(b);
    }
};

}  // namespace draftscope
