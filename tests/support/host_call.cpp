#include "tests/support/host_call.h"

#include <algorithm>

#include "base/numel.h"

namespace draftscope::testing {

void HostCall::list_sequences(const LmHead& head, int level, int rows, std::span<HeadState* const> states) {
    sequences_.clear();
    std::size_t words = 0;
    for (int first = 0; first < rows;) {
        HeadState* const state = states.empty() ? nullptr : states[first];
        int end = first + 1;
        while (end < rows && (states.empty() || states[end] == state)) ++end;
        sequences_.push_back({state, static_cast<int>(sequences_.size()), first, end - first});
        words += head.needs().sets ? head.shape(level, end - first).set : 0;
        first = end;
    }
    sets_.resize(words);
    sizes_.assign(sequences_.size(), 0);
    std::size_t at = 0;
    for (HeadSequence& sequence : sequences_) {
        if (words == 0) break;
        sequence.set = sets_.data() + at;
        sequence.set_size = &sizes_[sequence.index];
        at += head.shape(level, sequence.rows).set;
    }
}

HeadCall HostCall::make_call(LmHead& head, int level, int rows, int k, std::span<HeadState* const> states) {
    kernels::Backend& backend = exec_;
    if (!begun_) (void)head.reserve(backend, level + 1, rows, k);  // work that begin() started is not dropped
    spans_.begin(backend);
    list_sequences(head, level, rows, states);
    HeadCall call{.backend = backend,
                  .phases = phases_,
                  .spans = spans_,
                  .level = level,
                  .rows = rows,
                  .k = k,
                  .sequences = sequences_};
    downloads_.resize(head.shape(level, rows).downloads);
    call.downloads = downloads_.data();
    if (head.needs().inputs) call.inputs = inputs_.data();
    return call;
}

void HostCall::begin(LmHead& head, int level, Rows<const float> embeddings, Rows<const float> hiddens,
                     std::span<HeadState* const> states) {
    const int rows = embeddings.rows, d = embeddings.cols;
    begun_ = false;
    HeadCall call = make_call(head, level, rows, max_candidates, states);
    inputs_.resize(numel(rows, 2 * d));
    for (int r = 0; r < rows; ++r) {
        std::copy_n(embeddings.row_data(r), d, inputs_.data() + numel(r, 2 * d));
        std::copy_n(hiddens.row_data(r), d, inputs_.data() + numel(r, 2 * d) + d);
    }
    if (head.needs().inputs) call.inputs = inputs_.data();
    head.begin(call);
    begun_ = true;
}

/// Calls the head and reads what it chose.
void HostCall::run(LmHead& head, HeadCall& call, Rows<const float> hidden) {
    const int stride = kernels::padded_columns(hidden.cols);
    x_.resize(numel(hidden.rows, stride));
    for (int r = 0; r < hidden.rows; ++r)
        std::copy_n(hidden.row_data(r), hidden.cols, x_.data() + numel(r, stride));
    call.x = kernels::Activations(x_.data());
    ids_.resize(numel(call.rows, call.k));
    logits_.resize(numel(call.rows, call.k));
    sums_.assign(call.rows, 0.0f);
    call.ids = ids_.data();
    call.logits = logits_.data();
    call.sums = sums_.data();
    head.propose(call);
    begun_ = false;
    std::vector<std::span<const TokenId>> sets;
    for (const HeadSequence& sequence : sequences_)
        if (head.needs().sets) sets.emplace_back(sequence.set, head.shape(call.level, sequence.rows).set);
    head.collect({spans_, call.level, call.rows, sequences_, sets, sizes_, downloads_});
}

Proposal HostCall::propose(LmHead& head, int level, Rows<const float> hidden,
                           std::span<HeadState* const> states, int k) {
    HeadCall call = make_call(head, level, hidden.rows, k, states);
    run(head, call, hidden);
    Proposal out{k, ids_, logits_, sums_, std::vector<int>(hidden.rows)};
    for (std::size_t cell = 0; cell < ids_.size(); ++cell) {
        if (ids_[cell] < 0) continue;
        if (call.tokens != nullptr) out.ids[cell] = call.tokens[ids_[cell]];
        ++out.counts[cell / k];
    }
    return out;
}

std::vector<SparseLogits> HostCall::support(LmHead& head, int level, Rows<const float> hidden,
                                            std::span<HeadState* const> states, double temperature) {
    HeadCall call = make_call(head, level, hidden.rows, 1, states);
    const SupportColumns columns = head.support_columns(level + 1);
    std::vector<float> logits(numel(hidden.rows, columns.stride));
    std::vector<TokenId> tokens(logits.size());
    std::vector<std::int32_t> sizes(hidden.rows, 0);
    call.support_logits = logits.data();
    call.support_stride = columns.stride;
    call.support_tokens = tokens.data();
    call.support_sizes = sizes.data();
    call.temperature = temperature;
    run(head, call, hidden);
    std::vector<SparseLogits> rows;
    for (const HeadSequence& sequence : sequences_) {
        for (int r = sequence.first_row; r < sequence.first_row + sequence.rows; ++r) {
            const std::size_t first = numel(r, columns.stride);
            const std::size_t count = columns.counted ? sizes[r] : head.shape(level, 1).support;
            SparseLogits& row = rows.emplace_back();
            row.logits.assign(logits.data() + first, logits.data() + first + count);
            const TokenId* const own = columns.per_row ? tokens.data() + first : call.tokens;
            if (own != nullptr) row.ids.assign(own, own + count);
        }
    }
    return rows;
}

}  // namespace draftscope::testing
