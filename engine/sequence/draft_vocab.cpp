#include "engine/sequence/draft_vocab.h"

#include <algorithm>
#include <numeric>
#include <span>

#include "kernels/host_rows.h"

namespace draftscope {

void DraftVocab::begin_round(const HeadState* state) {
    if (state != nullptr || state_ != nullptr)
        for (Set& set : sets_) set.known = false;
    state_ = state;
}

bool DraftVocab::covers(TokenId token, int level) {
    if (head_ == nullptr) return true;
    const Set& set = at(level);
    return set.everything || std::binary_search(set.ids.begin(), set.ids.end(), token);
}

void DraftVocab::freeze(int levels) {
    for (int level = 0; level < levels; ++level) {
        Set& set = at(level);
        if (set.ids.data() != set.memory.data()) set.memory.assign(set.ids.begin(), set.ids.end());
        set.ids = set.memory;
    }
    frozen_ = levels;
}

DraftVocab::Set& DraftVocab::at(int level) {
    if (frozen_ > 0) level = std::min(level, frozen_ - 1);
    while (static_cast<int>(sets_.size()) <= level) sets_.emplace_back();
    Set& set = sets_[level];
    if (set.known) return set;
    set.known = true;
    const ActiveSet active =
        head_ == nullptr ? ActiveSet{.all_below = vocab_} : head_->active_set(state_, level, set.memory);
    set.ids = active.ids;
    set.everything = (active.ids.empty() ? active.all_below : std::ssize(active.ids)) >= vocab_;
    if (set.everything || !active.ids.empty()) return set;
    set.memory.resize(active.all_below);
    std::iota(set.memory.begin(), set.memory.end(), 0);
    set.ids = set.memory;
    return set;
}

double DraftVocab::covered_prob(const kernels::Backend& backend, const float* logits,
                                const TargetSample& choice, const Sampling& sampling, int level) {
    const Set& set = at(level);
    if (set.everything) return 1.0;
    const float inverse = sampling.temperature > 0 ? inverse_temperature(sampling) : 1.0f;
    return static_cast<double>(kernels::set_probability(backend.pool(), logits, set.ids,
                                                        {inverse, choice.log_norm, choice.min_logit}));
}

}  // namespace draftscope
