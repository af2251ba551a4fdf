#include "engine/replay/covered_probability.h"

#include <algorithm>
#include <limits>

#include "base/numel.h"
#include "kernels/host_rows.h"

namespace draftscope {
namespace {

constexpr float negligible = 1e-9f;
constexpr int chunk = 32;  // rows of logits computed together

}  // namespace

Result<CoveredProbability> CoveredProbability::make(const DecodeRecording& recording, const Target& target,
                                                    kernels::Backend& backend, const RecordedPrompt& prompt,
                                                    int generated, Scratch& scratch) {
    CoveredProbability covered_prob;
    covered_prob.first_row_ = prompt.prompt_tokens - 1;
    covered_prob.likely_.resize(generated);
    const int d = recording.info().target.hidden, vocab = recording.info().target.tokens,
              columns = target.lm_head().n();
    covered_prob.active_.resize(vocab);
    const Sampling& sampling = recording.info().sampling;
    auto& [hidden, logits, choices, best] = scratch;
    hidden.resize(numel(chunk, d));
    logits.resize(numel(chunk, columns));
    const auto above = [](float p) { return p > negligible; };
    for (int first = 0; first < generated; first += chunk) {
        const int rows = std::min(chunk, generated - first);
        const Rows<float> in(hidden.data(), rows, d), out(logits.data(), rows, columns);
        const std::int64_t at = prompt.first_row + covered_prob.first_row_ + first;
        DS_TRY(recording.hidden(at, in));
        kernels::matmul(backend.pool(), target.lm_head(), in, out);
        const std::vector<TokenPosition> positions(rows);
        sample_tokens(backend, out, vocab, sampling, positions, choices);
        best.resize(rows);
        kernels::argmax(backend.pool(), Rows<const float>(out.data, rows, vocab, out.stride), best);
        const float inverse = sampling.temperature > 0 ? inverse_temperature(sampling) : 1.0f;
        backend.pool().parallel(rows, [&](int r) {
            const TargetSample& choice = choices[r];
            const std::span<float> row(out.row_data(r), vocab);
            // These are the tokens for which target_probability() returns 0.
            for (float& logit : row)
                if (!(logit >= choice.min_logit)) logit = -std::numeric_limits<float>::infinity();
            kernels::exp_row(backend.pool(), row, choice.log_norm / inverse, inverse, row);
            auto& likely = covered_prob.likely_[first + r];
            likely.reserve(std::ranges::count_if(row, above));
            for (TokenId id = 0; id < vocab; ++id)
                if (const float p = row[id]; above(p)) likely.emplace_back(id, std::min(p, 1.0f));
        });
        for (int r = 0; r < rows; ++r)
            covered_prob.agreed_ += recording.best(at + r, 1).front() == best[r] ? 1 : 0;
    }
    return covered_prob;
}

double CoveredProbability::of_active_set(int row, const ActiveSet& active) {
    double sum = 0;
    for (const TokenId id : active.ids) active_[id] = true;
    for (const auto& [id, p] : likely_[row - first_row_])
        if (active.ids.empty() ? active.has(id) : active_[id]) sum += static_cast<double>(p);
    for (const TokenId id : active.ids) active_[id] = false;
    return std::min(sum, 1.0);
}

double CoveredProbability::overlap(int row, const DraftDistribution& q) const {
    double sum = 0;
    auto next = q.tokens.begin();
    for (const auto& [id, p] : likely_[row - first_row_]) {
        std::ptrdiff_t at = id;
        if (!q.tokens.empty()) {
            next = std::lower_bound(next, q.tokens.end(), id);
            if (next == q.tokens.end()) break;
            if (*next != id) continue;
            at = next - q.tokens.begin();
        }
        if (at < std::ssize(q.probs)) sum += static_cast<double>(std::min(p, q.probs[at]));
    }
    return std::min(sum, 1.0);
}

}  // namespace draftscope
