#include "engine/draft/candidate_sampler.h"

#include <algorithm>
#include <bit>
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
    if (draw_on_device(context, jobs, level, k)) return;
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

/// Samples on the run's device, so that drafts do not depend on which part of a step runs on the device.
/// Returns false, without any effect, if no device or no memory is available.
bool CandidateSampler::draw_on_device(DraftContext& context, std::span<const DraftJob* const> jobs, int level,
                                      int k) {
    kernels::Device* device = context.exec.device();
    if (device == nullptr || k > kernels::max_topk) return false;
    std::vector<std::size_t> first;
    std::vector<float> values;
    std::vector<double> uniforms;
    for (std::size_t r = 0; r < jobs.size(); ++r) {
        if (support_[r].logits.size() > kernels::max_sample_columns) return false;
        first.push_back(values.size());
        values.insert(values.end(), support_[r].logits.begin(), support_[r].logits.end());
        const auto position = static_cast<std::int64_t>(jobs[r]->tokens.size()) + level;
        for (int order = 0; order < k; ++order)
            uniforms.push_back(draft_uniform(context.sampled->seed,
                                             static_cast<std::uint64_t>(jobs[r]->sequence), position, order));
    }
    // Per row: the columns and their log-probabilities, followed by the two words of the top-k/top-p cut.
    const std::size_t cells = jobs.size() * k;
    std::vector<std::int32_t> drawn(2 * cells);
    const std::lock_guard lock(device->submit_mutex());
    if (!d_logits_.reserve(*device, std::max<std::size_t>(values.size(), 1) * sizeof(float)) ||
        !uniforms_there_.reserve(*device, uniforms.size() * sizeof(double)) ||
        !drawn_on_device_.reserve(*device, (2 * cells + 2) * sizeof(std::int32_t)))
        return false;
    device->upload(d_logits_.as<void>(), values.data(), values.size() * sizeof(float));
    device->upload(uniforms_there_.as<void>(), uniforms.data(), uniforms.size() * sizeof(double));
    auto* ids = drawn_on_device_.as<std::int32_t>();
    auto* logprobs = drawn_on_device_.as<float>() + cells;
    for (std::size_t r = 0; r < jobs.size(); ++r) {
        const auto support = static_cast<int>(support_[r].logits.size());
        const std::size_t cell = r * k;
        if (support > 0)
            device->sample_without_replacement(
                {d_logits_.as<float>() + first[r], support, 1, support, k, context.sampled->temperature,
                 context.sampled->top_k, context.sampled->top_p, uniforms_there_.as<double>() + cell,
                 ids + cell, logprobs + cell, logprobs + cells, ids + 2 * cells + 1});
    }
    device->download(values.data(), d_logits_.as<void>(), values.size() * sizeof(float));
    device->download(drawn.data(), drawn_on_device_.as<void>(), drawn.size() * sizeof(std::int32_t));
    if (!device->synchronize().ok()) return false;
    std::vector<SampledToken> row;
    for (std::size_t r = 0; r < jobs.size(); ++r) {
        const auto begin = values.begin() + static_cast<std::ptrdiff_t>(first[r]);
        const auto end = begin + static_cast<std::ptrdiff_t>(support_[r].logits.size());
        DraftDistribution& q = *drawn_from_[r];
        std::swap(q.ids, support_[r].ids);
        q.probs.assign(begin, end);
        row.clear();
        for (std::size_t cell = r * static_cast<std::size_t>(k); row.size() < static_cast<std::size_t>(k);
             ++cell) {
            if (q.probs.empty() || drawn[cell] < 0) break;
            row.push_back(
                {q.id_at(static_cast<std::size_t>(drawn[cell])), std::bit_cast<float>(drawn[cells + cell])});
        }
        store_samples(r, row);
    }
    return true;
}

void CandidateSampler::extend(BeamExpansion& beam, int level, int parents, int first, int step, int topk) {
    const std::size_t width = topk;
    ids_.assign(numel(parents, width), no_token);
    logprobs_.assign(ids_.size(), 0.0f);
    counts_.assign(parents, 0);
    for (int p = 0; p < parents; ++p) {
        const int row = first + p * step;
        const std::size_t r = row, parent = p;
        counts_[parent] = std::min(proposal_.counts[r], topk);
        for (int c = 0; c < counts_[parent]; ++c) {
            // A device that is out of memory returns no token ids, and a missing token has no embedding for
            // the next level.
            if (proposal_.ids[at(row, c)] == no_token) {
                counts_[parent] = c;
                break;
            }
            const std::size_t to = parent * width + c;
            ids_[to] = proposal_.ids[at(row, c)];
            logprobs_[to] = proposal_.logits[at(row, c)] - proposal_.logsumexp[r];
        }
        if (!drawn_from_.empty()) beam.set_distribution(parent, drawn_from_[r]);
    }
    if (level > 0) return beam.extend(ids_, logprobs_, counts_);
    const std::size_t count = counts_[0];
    beam.start({ids_.data(), count}, {logprobs_.data(), count});
}

}  // namespace draftscope
