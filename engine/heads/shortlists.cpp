#include "engine/heads/shortlists.h"

#include <algorithm>
#include <bit>

#include "kernels/topk.h"

namespace draftscope {

void TokenUnion::take(std::vector<TokenId>& out) {
    out.clear();
    for (std::size_t w = 0; w < words_.size(); ++w) {
        for (std::uint64_t left = words_[w]; left != 0; left &= left - 1)
            out.push_back(static_cast<TokenId>(w * 64 + static_cast<std::size_t>(std::countr_zero(left))));
        words_[w] = 0;
    }
}

void select_own(kernels::Exec& exec, std::span<const float> logits, std::span<const std::int32_t> columns,
                int k, int row, std::vector<float>& own, Proposal& out) {
    const int support = static_cast<int>(columns.size()), kept = std::min(k, support);
    const auto r = static_cast<std::size_t>(row), cell = r * static_cast<std::size_t>(k);
    out.counts[r] = kept;
    if (support == 0) return;
    own.resize(columns.size());
    for (std::size_t i = 0; i < columns.size(); ++i) own[i] = logits[static_cast<std::size_t>(columns[i])];
    const Rows<const float> mine(own.data(), 1, support);
    kernels::logsumexp(exec, mine, std::span(out.logsumexp).subspan(r, 1));
    kernels::topk(exec, mine, kept, Rows<std::int32_t>(out.ids.data() + cell, 1, kept),
                  Rows<float>(out.logits.data() + cell, 1, kept));
}

}  // namespace draftscope
