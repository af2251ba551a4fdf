#include "engine/fit/ranking.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace draftscope::fit {

void TokenCounter::add(std::span<const TokenId> tokens) {
    for (const TokenId token : tokens)
        if (token >= 0 && token < static_cast<TokenId>(counts_.size())) ++counts_[token];
}

Ranking TokenCounter::ranking() const {
    Ranking result;
    result.ids.resize(counts_.size());
    std::iota(result.ids.begin(), result.ids.end(), 0);
    std::stable_sort(result.ids.begin(), result.ids.end(),
                     [&](std::int32_t a, std::int32_t b) { return counts_[a] > counts_[b]; });
    for (const std::int32_t id : result.ids) {
        const std::int64_t count = counts_[id];
        result.tokens += count;
        result.counts.push_back(static_cast<std::int32_t>(
            std::min<std::int64_t>(count, std::numeric_limits<std::int32_t>::max())));
    }
    return result;
}

double ranking_coverage(const Ranking& ranking, int size, const Ranking& counted) {
    if (counted.tokens == 0) return 0;
    std::vector<bool> selected(ranking.ids.size());
    for (std::size_t i = 0; i < std::min(static_cast<std::size_t>(std::max(size, 0)), ranking.ids.size());
         ++i)
        selected[ranking.ids[i]] = true;
    std::int64_t covered = 0;
    for (std::size_t i = 0; i < counted.ids.size(); ++i) {
        const std::size_t id = counted.ids[i];
        if (id < selected.size() && selected[id]) covered += counted.counts[i];
    }
    return static_cast<double>(covered) / static_cast<double>(counted.tokens);
}

}  // namespace draftscope::fit
