#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/reusable_vector.h"
#include "engine/heads/head.h"

/// Support for heads in which each hidden row of a level has its own shortlist (SpecVocab, DynaSpec, CORAL).
namespace draftscope {

/// One record per level of a round. Records are reused between rounds with stale contents, so that they keep
/// their memory.
template <typename Level>
class PerLevel {
  public:
    void clear() { entries_.clear(); }
    Level& operator[](int level) {
        for (Entry& one : entries_)
            if (one.level == level) return one.value;
        Entry& one = entries_.add();
        one.level = level;
        return one.value;
    }
    /// Returns the record of the deepest level up to `level`, or null. Levels after the round's last head
    /// call thus get that call's record.
    const Level* at(int level) const {
        const Entry* found = nullptr;
        for (const Entry& one : entries_)
            if (one.level <= level && (found == nullptr || one.level > found->level)) found = &one;
        return found == nullptr ? nullptr : &found->value;
    }

  private:
    struct Entry {
        int level = 0;
        Level value;
    };
    ReusableVector<Entry> entries_;
};

/// Shortlists of one sequence at each level of the round, for coverage and cost.
struct ShortlistState final : HeadState {
    struct Level {
        std::vector<TokenId> ids;  ///< union over the rows, ascending
        double active_rows = 0;    ///< rows of the head matrix read
        std::uint64_t bytes = 0;   ///< weights read, routers included
    };
    PerLevel<Level> levels;
    const Level* at(int level) const { return levels.at(level); }
};

/// Discards the records of a sequence's last round.
template <typename State>
void clear_levels(HeadState* state) {
    if (state != nullptr) static_cast<State&>(*state).levels.clear();
}
/// Discards those of all sequences of a call that starts a round.
template <typename State>
void clear_levels(const HeadCall& call) {
    for (const HeadSequence& sequence : call.sequences)
        if (call.level == 0) clear_levels<State>(sequence.state);
}

}  // namespace draftscope
