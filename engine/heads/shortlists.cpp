#include "engine/heads/shortlists.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "kernels/topk.h"

namespace draftscope {

void TokenMarks::take(std::vector<TokenId>& out) {
    // Eight marks are the lowest bits of eight bytes: the product's top byte has them side by side.
    constexpr std::uint64_t beside = 0x0102040810204080u;
    std::size_t count = 0;
    for (std::size_t word = 0; word < bits_.size(); ++word) {
        std::uint64_t bits = 0;
        for (int part = 7; part >= 0; --part) {
            std::uint64_t eight;
            std::memcpy(&eight, marks_.data() + word * 64 + static_cast<std::size_t>(part) * 8,
                        sizeof(eight));
            bits = bits << 8 | eight * beside >> 56;
        }
        bits_[word] = bits;
        count += static_cast<std::size_t>(std::popcount(bits));
    }
    std::fill(marks_.begin(), marks_.end(), std::uint8_t{0});
    out.resize(count);
    TokenId* next = out.data();
    for (std::size_t word = 0; word < bits_.size(); ++word)
        for (std::uint64_t bits = bits_[word]; bits != 0; bits &= bits - 1)
            *next++ = static_cast<TokenId>(word * 64 + static_cast<std::size_t>(std::countr_zero(bits)));
}

void TokenUnion::take(std::vector<TokenId>& out) {
    marks_.take(out);
    for (std::size_t i = 0; i < out.size(); ++i)
        place_[static_cast<std::size_t>(out[i])] = static_cast<std::int32_t>(i);
}

void select_own(kernels::Exec& exec, Rows<const float> logits,
                std::span<const std::span<const TokenId>> lists, std::span<const std::int32_t> places,
                int first, Proposal& out) {
    const auto r = static_cast<std::size_t>(first), cell = r * static_cast<std::size_t>(out.k);
    for (std::size_t i = 0; i < lists.size(); ++i)
        out.counts[r + i] = std::min(out.k, static_cast<int>(lists[i].size()));
    kernels::topk_of_columns(exec, logits, lists, out.k,
                             Rows<std::int32_t>(out.ids.data() + cell, logits.rows, out.k),
                             Rows<float>(out.logits.data() + cell, logits.rows, out.k),
                             std::span(out.logsumexp).subspan(r, lists.size()), places);
}

}  // namespace draftscope
