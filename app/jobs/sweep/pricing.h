#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/replay/path_ranks.h"
#include "stats/sweep_table.h"

/// Adds a profile's costs to swept settings and to oracles. An oracle is what a drafter would reach if the
/// length of each draft were known in advance. After "Speculative Decoding: Performance or Illusion?" (arXiv
/// 2601.11580).
namespace draftscope {

/// Returns the setting in the syntax of predict_method().
std::string method_text(const SettingKey& setting);

/// Predicts the times of a setting at its own tau and batch, and at the mean context of its rounds.
/// `plain_context` is that of plain decoding, and of rounds whose context is unknown. An error says what the
/// profile lacks.
Status price_setting(const MachineProfile& profile, double plain_context, SweepSetting& setting);

/// Accepted tokens of a drafter's longest chain at every position of every text: [text][position].
struct ChainLengths {
    std::string drafter, head, weights;  ///< as in SweepSetting
    int levels = 0;                      ///< of the chain
    std::vector<std::vector<std::uint8_t>> accepted;
    std::vector<int> first_prefix;  ///< [text]: committed tokens before the first position
};
ChainLengths chain_lengths(const std::vector<PathRanks>& texts, int levels);

/// Returns whether two lists [drafter][tokens] are of the same drafters and lengths.
bool have_same_shape(const std::vector<std::vector<double>>& a, const std::vector<std::vector<double>>& b);

/// Returns the bound of one drafter or of two with the same texts, without its costs.
OracleLine oracle_line(const std::vector<const ChainLengths*>& drafters);

/// Predicts the times of a bound at its batch. A round that accepts nothing pays one draft call. For
/// `plain_context` see price_setting().
Status price_oracle(const MachineProfile& profile, double plain_context, OracleLine& line);

}  // namespace draftscope
