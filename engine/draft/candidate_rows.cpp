#include "engine/draft/candidate_rows.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace draftscope {
namespace {

/// Of a head that does not give its whole support (our default).
constexpr int candidates_drawn_from = 64;

}  // namespace

void CandidateRows::propose(DraftContext& context, Rows<const float> hidden,
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
    context.head->propose(call, hidden, states_, std::max(context.tree.topk, candidates_drawn_from),
                          proposal_);
    if (support_.size() != jobs.size()) support_from_candidates();
    draw(context, jobs, level, k);
}

void CandidateRows::support_from_candidates() {
    support_.resize(proposal_.counts.size());
    for (std::size_t r = 0; r < support_.size(); ++r) {
        const std::size_t first = at(static_cast<int>(r), 0);
        const auto count = static_cast<std::size_t>(proposal_.counts[r]);
        const auto ids = std::span(proposal_.ids).subspan(first, count);
        const auto logits = std::span(proposal_.logits).subspan(first, count);
        support_[r].ids.assign(ids.begin(), ids.end());
        support_[r].logits.assign(logits.begin(), logits.end());
    }
}

void CandidateRows::draw(DraftContext& context, std::span<const DraftJob* const> jobs, int level, int k) {
    PhaseScope scope(context.phases, Phase::topk, level, static_cast<int>(jobs.size()));
    const int rows = static_cast<int>(jobs.size());
    drawn_from_.resize(jobs.size());
    proposal_.resize(rows, k);
    context.exec.parallel(rows, [&](int row) {
        const auto r = static_cast<std::size_t>(row);
        const DraftJob& job = *jobs[r];
        auto q = std::make_shared<DraftDistribution>(draft_distribution(
            context.exec, std::move(support_[r].ids), std::move(support_[r].logits), *context.sampled));
        const auto position = static_cast<std::int64_t>(job.tokens.size()) + level;
        const std::vector<DrawnDraft> drawn =
            draw_drafts(*q, k, *context.sampled, static_cast<std::uint64_t>(job.sequence), position);
        proposal_.counts[r] = static_cast<int>(drawn.size());
        for (std::size_t i = 0; i < drawn.size(); ++i) {
            proposal_.ids[at(row, static_cast<int>(i))] = drawn[i].token;
            proposal_.logits[at(row, static_cast<int>(i))] = drawn[i].logprob;
        }
        drawn_from_[r] = std::move(q);
    });
}

void CandidateRows::extend(BeamExpansion& beam, int level, int parents, int first, int step, int topk) {
    const auto width = static_cast<std::size_t>(topk);
    ids_.assign(static_cast<std::size_t>(parents) * width, no_token);
    logprobs_.assign(ids_.size(), 0.0f);
    counts_.assign(static_cast<std::size_t>(parents), 0);
    for (int p = 0; p < parents; ++p) {
        const int row = first + p * step;
        const auto r = static_cast<std::size_t>(row), parent = static_cast<std::size_t>(p);
        counts_[parent] = std::min(proposal_.counts[r], topk);
        for (int c = 0; c < counts_[parent]; ++c) {
            const std::size_t to = parent * width + static_cast<std::size_t>(c);
            ids_[to] = proposal_.ids[at(row, c)];
            logprobs_[to] = proposal_.logits[at(row, c)] - proposal_.logsumexp[r];
        }
        if (!drawn_from_.empty()) beam.set_drawn_from(parent, drawn_from_[r]);
    }
    if (level > 0) return beam.extend(ids_, logprobs_, counts_);
    const auto count = static_cast<std::size_t>(counts_[0]);
    beam.start({ids_.data(), count}, {logprobs_.data(), count});
}

}  // namespace draftscope
