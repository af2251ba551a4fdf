#include "engine/draft/candidate_sampler.h"

#include <algorithm>
#include <cassert>

#include "base/numel.h"

namespace draftscope {
namespace {

/// Best candidates to sample from if a head does not report its whole support (our default).
constexpr int min_candidates_to_sample = 64;

}  // namespace

void CandidateSampler::propose(DraftContext& context, Rows<const float> hidden,
                               std::span<const DraftJob* const> jobs, int level, int k) {
    assert(static_cast<int>(jobs.size()) == hidden.rows);
    states_.clear();
    for (const DraftJob* job : jobs) states_.push_back(job->head_state);
    ProposeContext call{context.exec, context.phases, level};
    if (context.sampled != nullptr) {
        support_.clear();
        call.support = &support_;
        call.temperature = context.sampled->temperature;
    }
    if (context.sampled == nullptr) return context.head->propose(call, hidden, states_, k, proposal_);
    context.head->propose(call, hidden, states_, std::max(context.tree.topk, min_candidates_to_sample),
                          proposal_);
    if (support_.size() != jobs.size()) support_from_candidates();
}

void CandidateSampler::support_from_candidates() {
    support_.clear();
    for (std::size_t r = 0; r < proposal_.counts.size(); ++r) {
        const std::size_t first = at(static_cast<int>(r), 0);
        const std::size_t count = proposal_.counts[r];
        const auto ids = std::span(proposal_.ids).subspan(first, count);
        const auto logits = std::span(proposal_.logits).subspan(first, count);
        SparseLogits& row = support_.add();
        row.ids.assign(ids.begin(), ids.end());
        row.logits.assign(logits.begin(), logits.end());
    }
}

void CandidateSampler::store(int k, std::int32_t* ids, float* logits, float* logsumexp) const {
    for (std::size_t r = 0; r < proposal_.counts.size(); ++r) {
        const std::size_t from = numel(r, proposal_.k), to = numel(r, k);
        const int count = std::min(proposal_.counts[r], k);
        std::copy_n(proposal_.ids.data() + from, count, ids + to);
        std::copy_n(proposal_.logits.data() + from, count, logits + to);
        std::fill(ids + to + count, ids + to + k, no_token);
        logsumexp[r] = proposal_.logsumexp[r];
    }
}

}  // namespace draftscope
