#include "engine/fit/ranking.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace draftscope::fit {

void TokenCounter::add(std::span<const TokenId> tokens) {
    for (const TokenId token : tokens)
        if (token >= 0 && token < static_cast<TokenId>(counts_.size()))
            ++counts_[static_cast<std::size_t>(token)];
}

Ranking TokenCounter::ranking() const {
    Ranking result;
    result.ids.resize(counts_.size());
    std::iota(result.ids.begin(), result.ids.end(), 0);
    std::stable_sort(result.ids.begin(), result.ids.end(), [&](std::int32_t a, std::int32_t b) {
        return counts_[static_cast<std::size_t>(a)] > counts_[static_cast<std::size_t>(b)];
    });
    for (const std::int32_t id : result.ids) {
        const std::int64_t count = counts_[static_cast<std::size_t>(id)];
        result.tokens += count;
        result.counts.push_back(static_cast<std::int32_t>(
            std::min<std::int64_t>(count, std::numeric_limits<std::int32_t>::max())));
    }
    return result;
}

double coverage_of(const Ranking& ranking, int size) {
    if (ranking.tokens == 0) return 0;
    const auto last = ranking.counts.begin() +
                      std::min<std::ptrdiff_t>(size, static_cast<std::ptrdiff_t>(ranking.counts.size()));
    return static_cast<double>(std::accumulate(ranking.counts.begin(), last, std::int64_t{0})) /
           static_cast<double>(ranking.tokens);
}

}  // namespace draftscope::fit
