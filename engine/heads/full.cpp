#include "engine/heads/factories.h"
#include "engine/heads/linear_lm_head.h"
#include "engine/heads/static_vocab.h"

namespace draftscope {
namespace {

/// The exact LM head: z = W h over all V tokens. Baseline of rho_tau and nu.
class FullHead final : public LinearLmHead {
  public:
    Status prepare(kernels::Backend&, const HeadWeights& weights) override {
        const int needed = num_lm_head_tokens(weights);
        if (weights.lm_head == nullptr || needed < 1 || needed > weights.lm_head->n())
            return failed("head full: no LM head for {} tokens", weights.vocab);
        product_ = {nullptr, weights.lm_head, needed, weights.row_ids};
        return {};
    }

    HeadProduct product(int) const override { return product_; }

  private:
    HeadProduct product_;
};

constexpr HeadParam full_params[] = {softmax_param};

}  // namespace

HeadInfo describe_full() {
    return {.id = full_head_id,
            .name = "Full",
            .paper = "the drafter's LM head, as in EAGLE-2 (arXiv 2406.16858)",
            .params = full_params,
            .rgb = 0xBFC5CB,
            .support = HeadSupport::all,
            .make = [](const HeadSpec&, const HeadFiles&) -> Result<std::unique_ptr<LmHead>> {
                return std::unique_ptr<LmHead>(std::make_unique<FullHead>());
            }};
}

}  // namespace draftscope
