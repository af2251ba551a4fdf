#include <algorithm>
#include <limits>
#include <utility>

#include "base/numel.h"
#include "engine/heads/candidates.h"
#include "engine/heads/factories.h"
#include "engine/heads/low_rank.h"
#include "engine/heads/synthetic_artefact.h"

namespace draftscope {
namespace {

/// SlimSpec (arXiv 2605.10453): the LM head is replaced by z = W_up (W_down h). Every token has a logit, so
/// the support is the whole vocabulary.
class SlimSpecHead final : public LmHead {
  public:
    explicit SlimSpecHead(HeadArtefact artefact) : artefact_(std::move(artefact)) {}

    Status prepare(kernels::Exec& exec, const HeadWeights& weights) override {
        DS_TRY(check_weights(weights, "slimspec"));
        DS_TRY(artefact_.fits(weights));
        DS_ASSIGN(factors_, LowRankScorer::load(exec, weights, artefact_, "up"));
        return {};
    }

    void propose(ProposeContext& context, Rows<const float> hidden, std::span<HeadState* const>, int k,
                 Proposal& out) override {
        Rows<const float> narrow;
        {
            PhaseScope scope(context.phases, Phase::head, context.level, hidden.rows,
                             factors_.down(context.level).bytes());
            narrow = factors_.narrow(context.exec, context.level, hidden);
        }
        const kernels::Matrix& up = factors_.up(context.level);
        dense_.propose(context, up, nullptr, factors_.rows(), factors_.ids(), narrow, k, up.bytes(), out);
        if (!factors_.ids().empty()) remap_ids(context, factors_.ids(), hidden.rows, out);
    }

    std::optional<LinearHead> as_linear(int level) const override {
        return LinearHead{&factors_.down(level), &factors_.up(level), factors_.rows(), factors_.ids()};
    }

    HeadCost cost_at(const HeadState*, int, int level) const override {
        return {static_cast<double>(factors_.rows()), factors_.bytes(level), factors_.flops_per_row(level),
                Lane::critical};
    }

    bool covers(const HeadState*, TokenId token, int) const override { return factors_.has(token); }

    void scores(kernels::Exec& exec, Rows<const float> hidden, const HeadState*, int level,
                Rows<float> out) override {
        const Rows<float> logits = scratch(hidden.rows);
        factors_.run(exec, level, hidden, logits);
        for (int r = 0; r < out.rows; ++r) {
            const std::span<float> row = out.row(r);
            std::fill(row.begin(), row.end(), -std::numeric_limits<float>::infinity());
            for (int i = 0; i < factors_.rows(); ++i) row[factors_.token(i)] = logits.row_data(r)[i];
        }
    }

  private:
    Rows<float> scratch(int rows) {
        logits_.resize(numel(rows, factors_.rows()));
        return {logits_.data(), rows, factors_.rows()};
    }

    HeadArtefact artefact_;
    LowRankScorer factors_;
    LinearProposer dense_;
    std::vector<float> logits_;
};

constexpr HeadParam params[] = {
    {"rank", 0, 1, 1 << 20, false,
     "rank of the head, or of its W_down per draft level (72/36); default: the artefact's (the paper: d/8)",
     true},
};

Result<std::unique_ptr<LmHead>> make(const HeadSpec& spec, const HeadFiles& artefacts) {
    DS_ASSIGN(HeadArtefact artefact, required_artefact(spec, artefacts));
    return std::unique_ptr<LmHead>(std::make_unique<SlimSpecHead>(std::move(artefact)));
}

}  // namespace

HeadInfo describe_slimspec() {
    return {.id = "slimspec",
            .name = "SlimSpec",
            .paper = "SlimSpec, arXiv 2605.10453",
            .params = params,
            .rgb = 0xD55E00,
            .support = HeadSupport::all,
            .required_file = RequiredFile::fitted,
            .artefact = "low-rank head",
            .fit = {.weights = FitRecipe::Weights::low_rank, .up = "up"},
            .synthesize = [](SyntheticBuilder& builder) { return add_low_rank(builder, "up"); },
            .make = make};
}

}  // namespace draftscope
