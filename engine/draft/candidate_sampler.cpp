#include "engine/draft/candidate_sampler.h"

#include <algorithm>
#include <cassert>
#include <memory>
#include <utility>

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
    drawn_from_.clear();
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
    draw(context, jobs, level, k);
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

/// Selects one distribution per row for drawn_from_, reusing those that no tree holds any longer.
void CandidateSampler::reuse_distributions(std::size_t rows) {
    drawn_from_.clear();
    // Another thread may have released the last reference, and use_count() orders nothing. lock()
    // synchronises with that thread. A fence would do as well, but ThreadSanitizer does not support fences.
    for (const auto& one : distributions_)
        if (drawn_from_.size() < rows && one.use_count() == 1)
            drawn_from_.push_back(std::weak_ptr(one).lock());
    while (drawn_from_.size() < rows)
        drawn_from_.push_back(distributions_.emplace_back(std::make_shared<DraftDistribution>()));
}

void CandidateSampler::draw(DraftContext& context, std::span<const DraftJob* const> jobs, int level, int k) {
    PhaseScope scope(context.phases, Phase::topk, level, static_cast<int>(jobs.size()));
    const int rows = static_cast<int>(jobs.size());
    reuse_distributions(jobs.size());
    proposal_.resize(rows, k);
    const int threads = std::min(context.exec.threads(), rows);
    scratch_.resize(context.exec.threads());
    context.exec.parallel(threads, [&](int thread) {
        for (int row = thread; row < rows; row += threads) {
            const std::size_t r = row;
            const DraftJob& job = *jobs[r];
            DraftSampleScratch& scratch = scratch_[thread];
            DraftDistribution& q = *drawn_from_[r];
            std::swap(q.ids, support_[r].ids);
            std::swap(q.probs, support_[r].logits);
            make_distribution(context.exec, *context.sampled, scratch, q);
            const auto position = static_cast<std::int64_t>(job.tokens.size()) + level;
            store_samples(r, sample_drafts(q, k, *context.sampled, static_cast<std::uint64_t>(job.sequence),
                                           position, scratch));
        }
    });
}

void CandidateSampler::store_samples(std::size_t row, std::span<const SampledToken> drawn) {
    proposal_.counts[row] = static_cast<int>(drawn.size());
    for (std::size_t i = 0; i < drawn.size(); ++i) {
        const std::size_t cell = at(static_cast<int>(row), static_cast<int>(i));
        proposal_.ids[cell] = drawn[i].token;
        proposal_.logits[cell] = drawn[i].logprob;
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
