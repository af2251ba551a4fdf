#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "capture/capture.h"

/// Groups prompts into conversations. A conversation is the unit that every interval resamples, since its
/// turns share their text.
namespace draftscope {

/// Suite, id and turn of a prompt.
struct TurnName {
    std::string_view suite, id;
    int turn = 0;
};

/// Returns the conversation of each turn, numbered from 0. `turns` are in the order of the prompt file. A
/// later turn of the same suite and id continues the conversation; the same or an earlier turn begins a new
/// one. A turn without an id is a conversation by itself.
std::vector<std::size_t> group_conversations(std::span<const TurnName> turns);

/// The conversations of a recorded run.
class Conversations {
  public:
    Conversations(const Snapshot& snapshot, RowId run_id);

    std::size_t count() const { return count_; }
    /// Returns the prompt's conversation; absent if the prompt belongs to another run.
    std::optional<std::size_t> find(RowId prompt_id) const {
        const auto found = by_prompt_.find(prompt_id);
        return found == by_prompt_.end() ? std::nullopt : std::optional(found->second);
    }

  private:
    std::unordered_map<RowId, std::size_t> by_prompt_;
    std::size_t count_ = 0;
};

}  // namespace draftscope
