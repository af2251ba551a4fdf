#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/units.h"

namespace draftscope::fit {

/// Token counts, most frequent first, ties by ascending id, with every id of the vocabulary once.
struct Ranking {
    std::vector<std::int32_t> ids;
    std::vector<std::int32_t> counts;  ///< parallel to `ids`
    std::int64_t tokens = 0;           ///< total count
};

class TokenCounter {
  public:
    explicit TokenCounter(int vocab) : counts_(vocab) {}
    /// Ids outside the vocabulary are ignored.
    void add(std::span<const TokenId> tokens);
    Ranking ranking() const;

  private:
    std::vector<std::int64_t> counts_;
};

/// Share of the tokens in `counted` that the first `size` of `ranking` cover; 0 if it is empty. A ranking's
/// coverage of its own text is `ranking_coverage(ranking, size, ranking)`.
double ranking_coverage(const Ranking& ranking, int size, const Ranking& counted);

}  // namespace draftscope::fit
