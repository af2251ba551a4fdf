#include "engine/heads/trained_vocab.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/heads/artefact.h"
#include "engine/heads/candidates.h"

namespace draftscope {
namespace {

class TrainedVocabHead final : public LmHead {
  public:
    explicit TrainedVocabHead(HeadArtefact artefact) : artefact_(std::move(artefact)) {}

    Status prepare(kernels::Exec& exec, const HeadWeights& weights) override {
        DS_TRY(check_weights(weights, artefact_.info().head));
        DS_TRY(artefact_.fits(weights));
        DS_ASSIGN(ids_, artefact_.ascending_ids("ids"));
        for (const TokenId id : weights.always_active)
            if (id >= 0 && id < weights.vocab && !std::binary_search(ids_.begin(), ids_.end(), id))
                return bad_input("{}: tensor 'ids' lacks token {}, which ends the target's text",
                                 artefact_.path(), id);
        rows_.clear();
        for (int level = 0; level < std::max(1, artefact_.levels("weight")); ++level) {
            DS_ASSIGN(auto matrix, artefact_.matrix(exec, weights.lm_head->precision(),
                                                    artefact_.at_level("weight", level),
                                                    static_cast<int>(ids_.size()), weights.hidden));
            rows_.push_back(std::move(matrix));
        }
        return {};
    }

    void propose(ProposeContext& context, Rows<const float> hidden, std::span<HeadState* const>, int k,
                 Proposal& out) override {
        propose_rows(context, at(context.level), ids_, hidden, k, dense_, out);
    }

    std::optional<LinearHead> as_linear(int level) const override {
        return LinearHead{nullptr, &at(level), at(level).n(), ids_};
    }

    HeadCost cost_at(const HeadState*, int, int level) const override { return matrix_cost(at(level)); }

    bool covers(const HeadState*, TokenId token, int) const override {
        return std::binary_search(ids_.begin(), ids_.end(), token);
    }
    bool active_ids(const HeadState*, int, std::vector<TokenId>& out) const override {
        out = ids_;
        return true;
    }

    void scores(kernels::Exec& exec, Rows<const float> hidden, const HeadState*, int level,
                Rows<float> out) override {
        score_rows(exec, at(level), ids_, hidden, logits_, out);
    }

  private:
    const kernels::Matrix& at(int level) const {
        return rows_[std::clamp(level, 0, static_cast<int>(rows_.size()) - 1)];
    }

    HeadArtefact artefact_;
    std::vector<TokenId> ids_;
    std::vector<kernels::Matrix> rows_;  ///< per level; the last one for all deeper levels
    LinearProposer dense_;
    std::vector<float> logits_;
};

}  // namespace

Result<std::unique_ptr<LmHead>> make_trained_vocab_head(const HeadSpec& spec, const HeadFiles& artefacts) {
    DS_ASSIGN(HeadArtefact artefact, required_artefact(spec, artefacts));
    return std::unique_ptr<LmHead>(std::make_unique<TrainedVocabHead>(std::move(artefact)));
}

}  // namespace draftscope
