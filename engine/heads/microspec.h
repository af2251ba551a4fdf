#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "base/units.h"

namespace draftscope {

/// MicroSpec's candidate stream S and its active set I = Unique(Suffix(S, window)) (Algorithm 1). Only the
/// window is kept; tokens that leave it are forgotten.
class RecentTokenWindow {
  public:
    RecentTokenWindow(int vocab, int window);
    /// Makes room for calls of append_unique() with up to `count` ids.
    void reserve(std::size_t count) { seen_.reserve(count); }
    /// Appends an id, which must be in the vocabulary.
    void append(TokenId id);
    /// Appends each distinct id of `ids` in order of first appearance. `only_new` skips ids that are already
    /// active.
    void append_unique(std::span<const TokenId> ids, bool only_new = false);
    bool has(TokenId id) const {
        return id >= 0 && id < static_cast<TokenId>(times_.size()) && times_[id] > 0;
    }
    /// Writes I in ascending order.
    void active(std::vector<TokenId>& out) const;

  private:
    void enter(TokenId id);
    void leave(TokenId id);

    std::vector<TokenId> ring_;  ///< the window; next_ is its oldest entry when full
    std::size_t next_ = 0;
    std::size_t window_;
    std::vector<int> times_;           ///< [V] occurrences in the window
    std::vector<bool> marked_;         ///< [V] scratch of append_unique(), all false between calls
    std::vector<TokenId> seen_;        ///< the marked ids
    std::vector<std::uint64_t> bits_;  ///< [V] bitmap of the window
};

}  // namespace draftscope
