#include "engine/decode/draft_vocab.h"

#include <algorithm>
#include <span>

#include "kernels/sampling.h"

namespace draftscope {

void DraftVocab::begin_round(const HeadState* state) {
    if (state != nullptr || state_ != nullptr)
        for (Set& set : sets_) set.known = false;
    state_ = state;
}

bool DraftVocab::covers(TokenId token, int level) const {
    if (head_ == nullptr) return true;
    if (frozen_ == 0) return head_->covers(state_, token, level);
    const Set& set = sets_[std::min(level, frozen_ - 1)];
    return set.everything || std::binary_search(set.ids.begin(), set.ids.end(), token);
}

void DraftVocab::freeze(int levels) {
    for (int level = 0; level < levels; ++level) at(level);
    for (Set& set : sets_)
        if (!std::ranges::is_sorted(set.ids)) std::ranges::sort(set.ids);
    frozen_ = levels;
}

const DraftVocab::Set& DraftVocab::at(int level) {
    if (frozen_ > 0) level = std::min(level, frozen_ - 1);
    while (static_cast<int>(sets_.size()) <= level) sets_.emplace_back();
    Set& set = sets_[level];
    if (set.known) return set;
    set.known = true;
    set.ids.clear();
    TokenId first_out = 0;
    while (first_out < vocab_ && covers(first_out, level)) ++first_out;
    set.everything = first_out == vocab_;
    if (set.everything) return set;
    if (head_ == nullptr || !head_->active_ids(state_, level, set.ids)) {
        for (TokenId token = 0; token < vocab_; ++token)
            if (covers(token, level)) set.ids.push_back(token);
    }
    return set;
}

double DraftVocab::covered_prob(const kernels::Exec& exec, const float* logits, const TargetSample& choice,
                                const Sampling& sampling, int level) {
    const Set& set = at(level);
    if (set.everything) return 1.0;
    const float inverse = sampling.temperature > 0 ? inverse_temperature(sampling) : 1.0f;
    return static_cast<double>(
        kernels::set_probability(exec, logits, set.ids, {inverse, choice.log_norm, choice.min_logit}));
}

}  // namespace draftscope
