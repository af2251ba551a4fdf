#include <algorithm>
#include <limits>

#include "base/numel.h"
#include "engine/heads/candidates.h"
#include "engine/heads/factories.h"
#include "kernels/matmul.h"

namespace draftscope {
namespace {

/// The exact LM head: z = W h over all V tokens. Baseline of rho_tau and nu.
class FullHead final : public LmHead {
  public:
    Status prepare(kernels::Exec&, const HeadWeights& weights) override {
        const int needed = weights.row_ids.empty() ? weights.vocab : static_cast<int>(weights.row_ids.size());
        if (weights.lm_head == nullptr || needed < 1 || needed > weights.lm_head->n())
            return failed("head full: no LM head for {} tokens", weights.vocab);
        weights_ = weights;
        support_ = needed;
        return {};
    }

    void propose(ProposeContext& context, Rows<const float> hidden, std::span<HeadState* const>, int k,
                 Proposal& out) override {
        const kernels::Matrix& head = *weights_.lm_head;
        dense_.propose(context, head, nullptr, support_, weights_.row_ids, hidden, k, head.bytes(), out);
        if (weights_.row_ids.empty()) return;
        remap_ids(context, weights_.row_ids, hidden.rows, out);
    }

    std::optional<LinearHead> as_linear(int) const override {
        return LinearHead{nullptr, weights_.lm_head, support_, weights_.row_ids};
    }

    HeadCost cost_at(const HeadState*, int, int) const override {
        const kernels::Matrix& head = *weights_.lm_head;
        return {static_cast<double>(head.n()), head.bytes(),
                2.0 * static_cast<double>(head.n()) * static_cast<double>(head.k()), Lane::critical};
    }

    bool covers(const HeadState*, TokenId token, int) const override {
        if (weights_.row_ids.empty()) return token >= 0 && token < weights_.vocab;
        return std::binary_search(weights_.row_ids.begin(), weights_.row_ids.end(), token);
    }

    void scores(kernels::Exec& exec, Rows<const float> hidden, const HeadState*, int,
                Rows<float> out) override {
        const kernels::Matrix& head = *weights_.lm_head;
        logits_.resize(numel(hidden.rows, head.n()));
        const Rows<float> logits(logits_.data(), hidden.rows, head.n());
        kernels::matmul(exec, head, hidden, logits);
        for (int r = 0; r < out.rows; ++r) {
            const std::span<float> row = out.row(r);
            std::fill(row.begin(), row.end(), -std::numeric_limits<float>::infinity());
            const float* from = logits.row_data(r);
            if (weights_.row_ids.empty()) {
                std::copy_n(from, std::min(weights_.vocab, out.cols), row.data());
                continue;
            }
            for (std::size_t i = 0; i < weights_.row_ids.size(); ++i) row[weights_.row_ids[i]] = from[i];
        }
    }

  private:
    HeadWeights weights_;
    int support_ = 0;  ///< rows of the LM head that are real tokens
    LinearProposer dense_;
    std::vector<float> logits_;
};

}  // namespace

std::unique_ptr<LmHead> make_full_head() {
    return std::make_unique<FullHead>();
}

HeadInfo describe_full() {
    return {.id = full_head_id,
            .name = "Full",
            .paper = "the drafter's LM head, as in EAGLE-2 (arXiv 2406.16858)",
            .rgb = 0xBFC5CB,
            .support = HeadSupport::all,
            .make = [](const HeadSpec&, const HeadFiles&) -> Result<std::unique_ptr<LmHead>> {
                return make_full_head();
            }};
}

}  // namespace draftscope
