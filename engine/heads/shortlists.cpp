#include "engine/heads/shortlists.h"

#include <algorithm>
#include <bit>

#include "kernels/topk.h"

namespace draftscope {

void TokenMarks::take(std::vector<TokenId>& out) {
    out.clear();
    for (std::size_t w = 0; w < words_.size(); ++w) {
        for (std::uint64_t left = words_[w]; left != 0; left &= left - 1)
            out.push_back(static_cast<TokenId>(w * 64 + static_cast<std::size_t>(std::countr_zero(left))));
        words_[w] = 0;
    }
}

void TokenUnion::take(std::vector<TokenId>& out) {
    marks_.take(out);
    for (std::size_t i = 0; i < out.size(); ++i)
        place_[static_cast<std::size_t>(out[i])] = static_cast<std::int32_t>(i);
}

void TokenUnion::places(std::span<const TokenId> ids, std::vector<std::int32_t>& out) const {
    out.resize(ids.size());
    for (std::size_t i = 0; i < ids.size(); ++i) out[i] = place_[static_cast<std::size_t>(ids[i])];
}

void select_own(kernels::Exec& exec, Rows<const float> logits,
                std::span<const std::vector<std::int32_t>> columns, int first, Proposal& out) {
    std::vector<std::span<const std::int32_t>> own(columns.begin(), columns.end());
    const auto r = static_cast<std::size_t>(first), cell = r * static_cast<std::size_t>(out.k);
    for (std::size_t i = 0; i < own.size(); ++i)
        out.counts[r + i] = std::min(out.k, static_cast<int>(own[i].size()));
    kernels::topk_of_columns(exec, logits, own, out.k,
                             Rows<std::int32_t>(out.ids.data() + cell, logits.rows, out.k),
                             Rows<float>(out.logits.data() + cell, logits.rows, out.k),
                             std::span(out.logsumexp).subspan(r, own.size()));
}

}  // namespace draftscope
