#include "engine/session/active_sets.h"

#include <algorithm>

namespace draftscope {

void ActiveSets::begin_round(const HeadState* state) {
    if (state != nullptr || state_ != nullptr) sets_.clear();
    state_ = state;
}

bool ActiveSets::covers(TokenId token, int level) const {
    if (head_ == nullptr) return true;
    if (frozen_ == 0) return head_->covers(state_, token, level);
    const Set& set = sets_.at(std::min(level, frozen_ - 1));
    return set.everything || std::binary_search(set.ids.begin(), set.ids.end(), token);
}

void ActiveSets::freeze(int levels) {
    for (int level = 0; level < levels; ++level) at(level);
    for (auto& [level, set] : sets_)
        if (!std::ranges::is_sorted(set.ids)) std::ranges::sort(set.ids);
    frozen_ = levels;
}

const ActiveSets::Set& ActiveSets::at(int level) {
    if (frozen_ > 0) level = std::min(level, frozen_ - 1);
    const auto [found, is_new] = sets_.try_emplace(level);
    Set& set = found->second;
    if (!is_new) return set;
    if (head_ == nullptr || !head_->active_ids(state_, level, set.ids)) {
        for (TokenId token = 0; token < vocab_; ++token)
            if (covers(token, level)) set.ids.push_back(token);
    }
    set.everything = set.ids.size() == static_cast<std::size_t>(vocab_);
    if (set.everything) set.ids = {};
    return set;
}

double ActiveSets::mass(const float* logits, const TargetChoice& choice, const Sampling& sampling,
                        int level) {
    const Set& set = at(level);
    if (set.everything) return 1.0;
    double sum = 0;
    for (const TokenId id : set.ids) sum += static_cast<double>(probability_of(choice, sampling, logits[id]));
    return std::min(sum, 1.0);
}

}  // namespace draftscope
