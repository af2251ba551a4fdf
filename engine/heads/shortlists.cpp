#include "engine/heads/shortlists.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace draftscope {

void TokenBitmap::take(std::vector<TokenId>& out) {
    // The multiplication collects the lowest bits of eight bytes in the product's top byte.
    constexpr std::uint64_t gather_low_bits = 0x0102040810204080u;
    std::size_t count = 0;
    for (std::size_t word = 0; word < bits_.size(); ++word) {
        std::uint64_t bits = 0;
        for (int part = 7; part >= 0; --part) {
            std::uint64_t eight;
            std::memcpy(&eight, marks_.data() + word * 64 + static_cast<std::size_t>(part) * 8,
                        sizeof(eight));
            bits = bits << 8 | eight * gather_low_bits >> 56;
        }
        bits_[word] = bits;
        count += std::popcount(bits);
    }
    std::fill(marks_.begin(), marks_.end(), std::uint8_t{0});
    out.resize(count);
    TokenId* next = out.data();
    for (std::size_t word = 0; word < bits_.size(); ++word)
        for (std::uint64_t bits = bits_[word]; bits != 0; bits &= bits - 1)
            *next++ = static_cast<TokenId>(word * 64 + std::countr_zero(bits));
}

}  // namespace draftscope
