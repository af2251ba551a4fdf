#include <algorithm>
#include <cassert>
#include <limits>

#include "base/rng.h"
#include "engine/verify/verify.h"
#include "kernels/host_rows.h"

namespace draftscope {
namespace {

/// Smaller temperatures behave like 0, and their inverse would overflow.
constexpr double min_temperature = 1e-4;

}  // namespace

float inverse_temperature(const Sampling& sampling) {
    return static_cast<float>(1.0 / std::max(sampling.temperature, min_temperature));
}

bool masks_tokens(const Sampling& sampling, int vocab) {
    return sampling.top_p < 1 || (sampling.top_k > 0 && sampling.top_k < vocab);
}

bool has_nan(std::span<const float> logits) {
    bool found = false;
    for (const float logit : logits) found = found | (logit != logit);  // without a branch
    return found;
}

Error not_numbers(std::string_view prompt, std::int64_t position) {
    return failed(
        "the target's logits are not numbers (prompt {}, position {}); its weights contain NaN or overflow: "
        "check the model's files, or try --precision f32",
        prompt, position);
}

float target_probability(const TargetSample& choice, const Sampling& sampling, float logit) {
    const float inverse = sampling.temperature > 0 ? inverse_temperature(sampling) : 1.0f;
    return kernels::RowDistribution{inverse, choice.log_norm, choice.min_logit}.probability(logit);
}

void sample_tokens(kernels::Backend& backend, Rows<const float> logits, int vocab, const Sampling& sampling,
                   std::span<const TokenPosition> positions, std::vector<TargetSample>& out) {
    assert(vocab <= logits.cols && positions.size() == static_cast<std::size_t>(logits.rows));
    const std::size_t rows = logits.rows;
    const bool sampled = sampling.temperature > 0, masked = sampled && masks_tokens(sampling, vocab);
    kernels::SampleScratch scratch;
    std::vector<std::int32_t> tokens(rows), last(rows);
    std::vector<float> values(rows), log_norm(rows);
    std::vector<float> min_logits(rows, -std::numeric_limits<float>::infinity());
    if (!sampled) {
        kernels::TopKOp op;
        op.logits = logits.data;
        op.stride = logits.stride;
        op.rows = logits.rows;
        op.support = vocab;
        op.k = 1;
        op.ids = tokens.data();
        op.values = values.data();
        op.logsumexp = log_norm.data();
        kernels::select_topk(backend.pool(), op);
    } else {
        const float inverse = inverse_temperature(sampling);
        std::vector<double> uniforms;
        for (const TokenPosition& at : positions)
            uniforms.push_back(
                token_uniform(sampling.seed, at.sequence, static_cast<std::uint64_t>(at.position)));
        kernels::SampleOp op{logits.data,     logits.stride, logits.rows,   vocab,           inverse,
                             uniforms.data(), tokens.data(), values.data(), log_norm.data(), {}};
        if (masked) {
            kernels::mask_top_k_top_p(backend.pool(),
                                      {logits.data, logits.stride, logits.rows, vocab, inverse,
                                       sampling.top_k, sampling.top_p, min_logits.data(), last.data()},
                                      scratch);
            op.mask = {min_logits.data(), last.data()};
        }
        kernels::sample(backend.pool(), op, scratch);
    }
    out.resize(rows);
    for (std::size_t r = 0; r < rows; ++r) {
        out[r] = {tokens[r], 0, log_norm[r], min_logits[r], values[r]};
        out[r].prob = target_probability(out[r], sampling, values[r]);
    }
}

}  // namespace draftscope
