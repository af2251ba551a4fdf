#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/units.h"

namespace draftscope::fit {

/// How often each token occurs, most frequent first, ties to the lower id; every id of the vocabulary once.
struct Ranking {
    std::vector<std::int32_t> ids;
    std::vector<std::int32_t> counts;  ///< beside `ids`
    std::int64_t tokens = 0;           ///< counted
};

class TokenCounter {
  public:
    explicit TokenCounter(int vocab) : counts_(static_cast<std::size_t>(vocab)) {}
    /// Ids outside the vocabulary do not count.
    void add(std::span<const TokenId> tokens);
    Ranking ranking() const;

  private:
    std::vector<std::int64_t> counts_;
};

/// Share of the tokens counted in `counted` that the first `size` of `ranking` cover; 0 when it counted none.
/// Coverage of a ranking's own text is `coverage_of(ranking, size, ranking)`.
double coverage_of(const Ranking& ranking, int size, const Ranking& counted);

}  // namespace draftscope::fit
