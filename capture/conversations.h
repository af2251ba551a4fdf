#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "capture/capture.h"

/// Which prompts are turns of one conversation: the unit that every interval resamples, since the turns of a
/// conversation share their text.
namespace draftscope {

/// How a prompt names its place.
struct TurnName {
    std::string_view suite, id;
    int turn = 0;
};

/// The conversation of each turn, numbered from 0. `turns` are in the order of the prompt file: the same
/// suite and id with a later turn goes on with a conversation, with the same or an earlier turn it begins
/// another one. A turn without an id is a conversation of its own.
std::vector<std::size_t> conversations_of(std::span<const TurnName> turns);

/// The conversations of a recorded run.
class Conversations {
  public:
    Conversations(const Snapshot& snapshot, RowId run_id);

    std::size_t count() const { return count_; }
    /// Absent for prompts that are not the run's.
    std::optional<std::size_t> of(RowId prompt_id) const {
        const auto found = by_prompt_.find(prompt_id);
        return found == by_prompt_.end() ? std::nullopt : std::optional(found->second);
    }

  private:
    std::unordered_map<RowId, std::size_t> by_prompt_;
    std::size_t count_ = 0;
};

}  // namespace draftscope
