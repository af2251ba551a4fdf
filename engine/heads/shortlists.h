#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/reused.h"
#include "engine/heads/head.h"
#include "kernels/row_store.h"

/// Heads in which every hidden row of a level chooses its own tokens (SpecVocab, DynaSpec, CORAL).
namespace draftscope {

/// What is noted of each level of a round. A level that is noted anew is found as it was left in an earlier
/// round, for its memory.
template <typename Level>
class RoundLevels {
  public:
    void clear() { noted_.clear(); }
    Level& operator[](int level) {
        for (Noted& one : noted_)
            if (one.level == level) return one.what;
        Noted& one = noted_.add();
        one.level = level;
        return one.what;
    }
    /// The deepest level at or above `level`: past the last head call of the round, that call's. Null before
    /// the first.
    const Level* at(int level) const {
        const Noted* found = nullptr;
        for (const Noted& one : noted_)
            if (one.level <= level && (found == nullptr || one.level > found->level)) found = &one;
        return found == nullptr ? nullptr : &found->what;
    }

  private:
    struct Noted {
        int level = 0;
        Level what;
    };
    Reused<Noted> noted_;
};

/// What one sequence's rows could propose at each level of the round, for coverage and cost.
struct ShortlistState final : HeadState {
    struct Level {
        std::vector<TokenId> ids;  ///< of any row, rising
        double active_rows = 0;    ///< rows of the head matrix read
        std::uint64_t bytes = 0;   ///< weights read, routers included
    };
    RoundLevels<Level> levels;
    const Level* at(int level) const { return levels.at(level); }
};

/// A set of tokens as marks: thousands of them are in order without a sort. A byte each, as neighbours that
/// share a word would wait for one another.
class TokenMarks {
  public:
    explicit TokenMarks(int vocab = 0)
        : marks_((static_cast<std::size_t>(vocab) + 63) / 64 * 64), bits_(marks_.size() / 64) {}
    void add(std::span<const TokenId> ids) {
        for (const TokenId id : ids) marks_[static_cast<std::size_t>(id)] = 1;
    }
    /// The tokens added since the last call, rising.
    void take(std::vector<TokenId>& out);

  private:
    std::vector<std::uint8_t> marks_;  ///< 0 or 1
    std::vector<std::uint64_t> bits_;  ///< the same, 64 a word; made by take()
};

/// The states of adjacent rows of one sequence: [first, end) ranges of `states`, null states left out.
template <typename Visit>
void for_each_sequence(std::span<HeadState* const> states, Visit visit) {
    for (std::size_t first = 0; first < states.size();) {
        std::size_t end = first + 1;
        while (end < states.size() && states[end] == states[first]) ++end;
        if (states[first] != nullptr)
            visit(static_cast<ShortlistState&>(*states[first]), static_cast<int>(first),
                  static_cast<int>(end));
        first = end;
    }
}

}  // namespace draftscope
