#include "engine/model/special_tokens.h"

#include <algorithm>
#include <cstdint>

namespace draftscope {

void SpecialTokens::add(std::string text, TokenId id, bool control) {
    if (text.empty()) return;
    std::vector<Entry>& entries = by_first_byte_[static_cast<std::uint8_t>(text[0])];
    const auto shorter = std::find_if(entries.begin(), entries.end(),
                                      [&](const Entry& entry) { return entry.text.size() < text.size(); });
    entries.insert(shorter, {std::move(text), id, control});
}

SpecialTokens::Hit SpecialTokens::find(std::string_view text, std::size_t from, bool with_control) const {
    for (std::size_t at = from; at < text.size(); ++at) {
        for (const Entry& entry : by_first_byte_[static_cast<std::uint8_t>(text[at])]) {
            if ((with_control || !entry.control) && text.substr(at).starts_with(entry.text))
                return {at, entry.text.size(), entry.id};
        }
    }
    return {};
}

}  // namespace draftscope
