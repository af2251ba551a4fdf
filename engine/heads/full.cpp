#include <algorithm>
#include <limits>

#include "engine/heads/candidates.h"
#include "engine/heads/factories.h"
#include "kernels/matmul.h"

namespace draftscope {
namespace {

/// The head to approximate, unapproximated: z = W h over all V tokens. Baseline of rho_tau and nu.
class FullHead final : public Head {
  public:
    Status prepare(kernels::Exec&, const HeadWeights& weights) override {
        if (weights.lm_head == nullptr || weights.vocab < 1 || weights.vocab > weights.lm_head->n())
            return failed("head full: no LM head for {} tokens", weights.vocab);
        weights_ = weights;
        return {};
    }

    void propose(ProposeContext& context, Rows<const float> hidden, std::span<HeadState* const>, int k,
                 Proposal& out) override {
        const kernels::Matrix& head = *weights_.lm_head;
        logits_.resize(static_cast<std::size_t>(hidden.rows) * static_cast<std::size_t>(head.n()));
        const Rows<float> logits(logits_.data(), hidden.rows, head.n());
        {
            PhaseScope scope(context.phases, Phase::head, context.level, hidden.rows, head.bytes());
            kernels::matmul(context.exec, head, hidden, logits);
        }
        select_candidates(context, logits, weights_.vocab, k, out);
    }

    HeadCost cost(int) const override {
        const kernels::Matrix& head = *weights_.lm_head;
        return {static_cast<double>(head.n()), head.bytes(),
                2.0 * static_cast<double>(head.n()) * static_cast<double>(head.k()), Lane::critical};
    }

    bool covers(const HeadState*, TokenId token, int) const override {
        return token >= 0 && token < weights_.vocab;
    }

    void scores(kernels::Exec& exec, Rows<const float> hidden, Rows<float> out) override {
        const kernels::Matrix& head = *weights_.lm_head;
        logits_.resize(static_cast<std::size_t>(hidden.rows) * static_cast<std::size_t>(head.n()));
        const Rows<float> logits(logits_.data(), hidden.rows, head.n());
        kernels::matmul(exec, head, hidden, logits);
        for (int r = 0; r < out.rows; ++r) {
            const std::span<float> row = out.row(r);
            std::fill(row.begin(), row.end(), -std::numeric_limits<float>::infinity());
            std::copy_n(logits.row_data(r), std::min(weights_.vocab, out.cols), row.data());
        }
    }

  private:
    HeadWeights weights_;
    std::vector<float> logits_;
};

}  // namespace

Result<std::unique_ptr<Head>> make_full_head(const HeadSpec&, const HeadArtefacts&) {
    return std::unique_ptr<Head>(std::make_unique<FullHead>());
}

}  // namespace draftscope
