#include "engine/replay/draft_overlap.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/numel.h"

namespace draftscope {

const DraftDistribution* OverlapHead::distribution(const DraftJob& chain, int level) const {
    if (level >= std::ssize(chain.rows_per_call) || level >= std::ssize(levels_)) return nullptr;
    const auto found = std::ranges::find(levels_[level], chain.sequence, &SequenceDistribution::sequence);
    return found == levels_[level].end() ? nullptr : &found->q;
}

bool OverlapHead::reserve(kernels::Backend& backend, int levels, int rows, int k) {
    columns_ = head_.support_columns(levels);
    const std::size_t size = numel(rows, columns_.stride);
    return head_.reserve(backend, levels, rows, k) && logits_.resize_at_least(backend, size) &&
           tokens_.resize_at_least(backend, size) && sizes_.resize_at_least(backend, numel(rows, 1));
}

void OverlapHead::begin(HeadCall& call) {
    if (call.level == 0) levels_.clear();
    head_.begin(call);
}

void OverlapHead::propose(HeadCall& call) {
    std::fill_n(sizes_.data(), call.rows, head_.shape(call.level, 1).support);
    HeadCall inner = call;
    inner.support_logits = logits_.data();
    inner.support_stride = columns_.stride;
    inner.support_tokens = tokens_.data();
    inner.support_sizes = sizes_.data();
    inner.temperature = sampling_.temperature;
    head_.propose(inner);
    call.tokens = nullptr;  // the ids are tokens
    if (std::ssize(levels_) <= call.level) levels_.resize(numel(call.level + 1, 1));
    for (const HeadSequence& sequence : call.sequences) {
        SequenceDistribution entry{sequence.index, {}};
        for (int row = sequence.first_row; row < sequence.first_row + sequence.rows; ++row) {
            const std::ptrdiff_t offset = numel(row, columns_.stride);
            const TokenId* const tokens = columns_.per_row ? tokens_.data() + offset : inner.tokens;
            select(call, row, logits_.data() + offset, tokens, sizes_.data()[row]);
            if (row == sequence.first_row)
                keep(call.backend, entry, logits_.data() + offset, tokens, sizes_.data()[row]);
        }
        levels_[call.level].push_back(std::move(entry));
    }
}

/// Stores the row's best token, ties to the lower one, and no further candidates: a chain takes one.
void OverlapHead::select(HeadCall& call, int row, const float* logits, const TokenId* tokens, int size) {
    const std::ptrdiff_t first = numel(row, call.k);
    std::fill_n(call.ids + first, call.k, -1);
    std::fill_n(call.logits + first, call.k, -std::numeric_limits<float>::infinity());
    call.sums[row] = 0;
    if (size == 0) return;
    const auto best = static_cast<int>(std::max_element(logits, logits + size) - logits);
    double sum = 0;
    for (int i = 0; i < size; ++i) sum += std::exp(static_cast<double>(logits[i] - logits[best]));
    call.ids[first] = tokens == nullptr ? best : tokens[best];
    call.logits[first] = logits[best];
    call.sums[row] = logits[best] + static_cast<float>(std::log(sum));
}

void OverlapHead::keep(const kernels::Backend& backend, SequenceDistribution& entry, const float* logits,
                       const TokenId* tokens, int size) {
    if (tokens != nullptr) entry.q.tokens.assign(tokens, tokens + size);
    entry.q.probs.assign(logits, logits + size);
    kernels::make_distribution(backend.pool(), sampling_.temperature, sampling_.top_k, sampling_.top_p,
                               scratch_, {entry.q.probs, entry.q.tokens});
}

}  // namespace draftscope
