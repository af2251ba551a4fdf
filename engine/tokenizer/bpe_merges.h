#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/units.h"

namespace draftscope {

/// Byte-pair merging (Sennrich et al. 2016). While adjacent symbols form a known pair, the pair with the best
/// rank is merged, the leftmost one first if ranks are equal.
class BpeMerges {
  public:
    /// Reserves memory for `count` pairs.
    explicit BpeMerges(std::size_t count);
    /// Adds a pair; pairs with a smaller `rank` merge first. Adding a pair again replaces its rank.
    void add(TokenId left, TokenId right, std::int32_t rank, TokenId merged);

    /// Scratch memory of apply(), reused between pieces.
    struct Scratch {
        struct Symbol {
            TokenId id;
            std::int32_t previous, next;  ///< -1: none
        };
        struct Candidate {
            std::int32_t rank, position;
        };
        std::vector<Symbol> symbols;
        std::vector<Candidate> queue;
    };
    /// Merges `ids` (one per byte) and appends the result. O(n log n).
    void apply(const std::vector<TokenId>& ids, Scratch& scratch, std::vector<TokenId>& out) const;

  private:
    struct Slot {
        std::uint64_t key;
        std::int32_t rank;
        TokenId merged;
    };
    static constexpr std::uint64_t empty_key = ~std::uint64_t{0};

    static std::uint64_t make_key(TokenId left, TokenId right) {
        return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 |
               static_cast<std::uint32_t>(right);
    }
    std::size_t first_slot(std::uint64_t key) const {
        return static_cast<std::size_t>(key * 0x9e3779b97f4a7c15u >> shift_);
    }
    const Slot* find(TokenId left, TokenId right) const;
    void push_candidate(Scratch& scratch, std::int32_t position) const;

    std::vector<Slot> slots_;  ///< open addressing, at most half full
    int shift_ = 0;
};

}  // namespace draftscope
