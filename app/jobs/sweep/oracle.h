#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/replay/path_ranks.h"
#include "stats/machine_profile.h"

/// What a drafter would reach if the length of each draft were known in advance. After "Speculative Decoding:
/// Performance or Illusion?" (arXiv 2601.11580).
namespace draftscope {

/// Accepted tokens of a drafter's longest chain at every position of every text: [text][position].
struct ChainLengths {
    std::string drafter, head, weights;  ///< as in SweepSetting
    int levels = 0;                      ///< of the chain
    std::vector<std::vector<std::uint8_t>> accepted;
    std::vector<int> first_prefix;  ///< [text]: committed tokens before the first position
};
ChainLengths chain_lengths(const std::vector<PathRanks>& texts, int levels);

/// A bound: every round drafts a chain of exactly the accepted length.
struct OracleLine {
    /// One drafter, or two. Of two, each round takes the longer draft, the first one's if they are equal.
    std::vector<std::string> drafters;
    std::string head;  ///< of the last drafter; "" = none
    std::string weights;
    int levels = 0;  ///< a draft is at most as long
    int batch = 1;
    /// Rounds by drafter and committed tokens: [drafter][tokens].
    std::vector<std::vector<double>> rounds;
    /// Committed tokens before each of these rounds, summed: as `rounds`. Empty = unknown.
    std::vector<std::vector<double>> positions;
    double round_ms = 0, plain_ms = 0;  ///< predicted

    double tau() const;
    double tokens_per_second() const { return round_ms > 0 ? 1e3 * batch * tau() / round_ms : 0; }
    double speedup() const { return round_ms > 0 ? tau() * plain_ms / round_ms : 0; }
};

/// Returns whether two lists [drafter][tokens] are of the same drafters and lengths.
bool have_same_shape(const std::vector<std::vector<double>>& a, const std::vector<std::vector<double>>& b);

/// Returns the bound of one drafter or of two with the same texts, without its costs.
OracleLine oracle_line(const std::vector<const ChainLengths*>& drafters);

/// Predicts the times of a bound at its batch. A round that accepts nothing pays one draft call. For
/// `plain_context` see price_setting().
Status price_oracle(const MachineProfile& profile, double plain_context, OracleLine& line);

}  // namespace draftscope
