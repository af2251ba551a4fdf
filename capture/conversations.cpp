#include "capture/conversations.h"

#include <algorithm>
#include <map>
#include <utility>

namespace draftscope {

std::vector<std::size_t> group_conversations(std::span<const TurnName> turns) {
    struct Last {
        std::size_t conversation = 0;
        int turn = 0;
    };
    std::map<std::pair<std::string_view, std::string_view>, Last> last_of;
    std::vector<std::size_t> out;
    out.reserve(turns.size());
    std::size_t count = 0;
    for (const TurnName& turn : turns) {
        const auto found = last_of.find({turn.suite, turn.id});
        const bool goes_on = !turn.id.empty() && found != last_of.end() && found->second.turn < turn.turn;
        const std::size_t conversation = goes_on ? found->second.conversation : count++;
        last_of[{turn.suite, turn.id}] = {conversation, turn.turn};
        out.push_back(conversation);
    }
    return out;
}

Conversations::Conversations(const Snapshot& snapshot, RowId run_id) {
    std::vector<const PromptRow*> prompts;
    for (const auto& prompt : snapshot.prompts)
        if (prompt->run_id == run_id) prompts.push_back(prompt.get());
    // A batch starts its prompts in an order different from the file's.
    std::ranges::stable_sort(prompts, {}, &PromptRow::ordinal);
    std::vector<TurnName> names;
    names.reserve(prompts.size());
    for (const PromptRow* prompt : prompts)
        names.push_back({prompt->suite, prompt->external_id, prompt->turn});
    const std::vector<std::size_t> numbers = group_conversations(names);
    for (std::size_t i = 0; i < prompts.size(); ++i) {
        by_prompt_.emplace(prompts[i]->id, numbers[i]);
        count_ = std::max(count_, numbers[i] + 1);
    }
}

}  // namespace draftscope
