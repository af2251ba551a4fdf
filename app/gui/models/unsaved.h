#pragma once

#include <cstddef>
#include <set>
#include <string>

#include "base/units.h"

namespace draftscope {

struct Snapshot;

/// Counts the rounds of live runs that are in no file.
class UnsavedRounds {
  public:
    /// Updates the count for a new snapshot. `kept`: its new runs need no saving, because they are recorded
    /// to a file or belong to the automatic demo.
    void update(const Snapshot& snapshot, bool kept);
    /// Marks the first `rounds` rounds of the snapshot as saved.
    void save(std::size_t rounds) { saved_rounds_ = rounds; }
    /// Returns the number of unsaved rounds.
    std::size_t count(const Snapshot& snapshot) const;

  private:
    std::string source_;
    std::size_t saved_rounds_ = 0, known_rounds_ = 0;
    std::set<RowId> known_, kept_;
};

}  // namespace draftscope
