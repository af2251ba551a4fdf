#pragma once

#include <cstddef>
#include <set>
#include <string>

#include "base/units.h"

namespace draftscope {

struct Snapshot;

/// Counts the rounds of live runs that lie in no file.
class UnsavedRounds {
  public:
    /// Takes notice of a new snapshot. `kept`: its new runs need no saving, being recorded to a file, or the
    /// demo's that started by itself.
    void see(const Snapshot& snapshot, bool kept);
    /// The first `rounds` rounds of the snapshot were saved.
    void save(std::size_t rounds) { saved_rounds_ = rounds; }
    std::size_t count(const Snapshot& snapshot) const;

  private:
    std::string source_;
    std::size_t saved_rounds_ = 0, known_rounds_ = 0;
    std::set<RowId> known_, kept_;
};

}  // namespace draftscope
