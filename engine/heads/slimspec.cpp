#include <utility>

#include "engine/heads/factories.h"
#include "engine/heads/head_common.h"
#include "engine/heads/linear_lm_head.h"
#include "engine/heads/low_rank.h"
#include "engine/heads/synthetic_artefact.h"

namespace draftscope {
namespace {

/// SlimSpec (arXiv 2605.10453): the LM head is replaced by z = W_up (W_down h). Every token has a logit, so
/// the support is the whole vocabulary.
class SlimSpecHead final : public LinearLmHead {
  public:
    explicit SlimSpecHead(HeadArtefact artefact) : artefact_(std::move(artefact)) {}

    Status prepare(kernels::Backend& backend, const HeadWeights& weights) override {
        DS_TRY(check_weights(weights, "slimspec"));
        DS_TRY(artefact_.fits(weights));
        DS_ASSIGN(factors_, LowRankScorer::load(backend, weights, artefact_, "up"));
        return {};
    }

    HeadProduct product(int level) const override {
        return {&factors_.down(level), &factors_.up(level), factors_.rows(), factors_.ids()};
    }

  private:
    HeadArtefact artefact_;
    LowRankScorer factors_;
};

constexpr HeadParam slimspec_params[] = {
    {"rank", 0, 1, 1 << 20, false,
     "rank of the head, or of its W_down per draft level (72/36); default: the file's (the paper: d/8)",
     true},
    softmax_param,
};

Result<std::unique_ptr<LmHead>> make_slimspec(const HeadSpec& spec, const HeadFiles& artefacts) {
    DS_ASSIGN(HeadArtefact artefact, required_artefact(spec, artefacts));
    return std::unique_ptr<LmHead>(std::make_unique<SlimSpecHead>(std::move(artefact)));
}

}  // namespace

HeadInfo describe_slimspec() {
    return {.id = "slimspec",
            .name = "SlimSpec",
            .paper = "SlimSpec, arXiv 2605.10453",
            .params = slimspec_params,
            .size = {.name = "rank",
                     .unit = HeadSizeParam::Unit::hidden,
                     .values = {1.0 / 16, 1.0 / 8, 1.0 / 4, 1.0 / 2}},
            .rgb = 0xD55E00,
            .support = HeadSupport::all,
            .required_file = RequiredFile::fitted,
            .artefact = "low-rank head",
            .fit = {.kinds = FitRecipe::low_rank, .up = "up"},
            .synthesize = [](SyntheticBuilder& builder) { return add_low_rank(builder, "up"); },
            .make = make_slimspec};
}

}  // namespace draftscope
