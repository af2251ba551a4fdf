#include "engine/heads/shortlists.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "kernels/topk.h"

namespace draftscope {

void TokenMarks::take(std::vector<TokenId>& out) {
    std::size_t count = 0;
    for (const std::uint8_t mark : marks_) count += mark;
    out.resize(count);
    TokenId* next = out.data();
    for (std::size_t first = 0; first < marks_.size(); first += 8) {
        std::uint64_t eight;
        std::memcpy(&eight, marks_.data() + first, sizeof(eight));
        for (; eight != 0; eight &= eight - 1)
            *next++ = static_cast<TokenId>(first + static_cast<std::size_t>(std::countr_zero(eight)) / 8);
    }
    std::fill(marks_.begin(), marks_.end(), std::uint8_t{0});
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
