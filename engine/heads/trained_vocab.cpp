#include "engine/heads/trained_vocab.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/heads/artefact.h"
#include "engine/heads/factories.h"
#include "engine/heads/head_common.h"
#include "engine/heads/linear_lm_head.h"

namespace draftscope {
namespace {

class TrainedVocabHead final : public LinearLmHead {
  public:
    TrainedVocabHead(HeadArtefact artefact, bool keep_ends)
        : artefact_(std::move(artefact)), keep_ends_(keep_ends) {}

    Status prepare(kernels::Backend& backend, const HeadWeights& weights) override {
        DS_TRY(check_weights(weights, artefact_.info().head));
        DS_TRY(artefact_.fits(weights));
        DS_ASSIGN(ids_, artefact_.ascending_ids("ids"));
        for (const TokenId id : with_ends(weights, keep_ends_).always_active)
            if (id >= 0 && id < weights.vocab && !std::binary_search(ids_.begin(), ids_.end(), id))
                return bad_input(
                    "{}: tensor 'ids' lacks token {}, which ends the target's text; leave out eos=yes",
                    artefact_.path(), id);
        rows_.clear();
        for (int level = 0; level < std::max(1, artefact_.levels("weight")); ++level) {
            DS_ASSIGN(auto matrix, artefact_.matrix(backend, weights.lm_head->precision(),
                                                    artefact_.at_level("weight", level),
                                                    static_cast<int>(ids_.size()), weights.hidden));
            rows_.push_back(std::move(matrix));
        }
        return {};
    }

    HeadProduct product(int level) const override { return {nullptr, &at(level), at(level).n(), ids_}; }

  private:
    const kernels::Matrix& at(int level) const {
        return rows_[std::clamp(level, 0, static_cast<int>(rows_.size()) - 1)];
    }

    HeadArtefact artefact_;
    bool keep_ends_;
    std::vector<TokenId> ids_;
    std::vector<kernels::Matrix> rows_;  ///< per level; the last one for all deeper levels
};

}  // namespace

Result<std::unique_ptr<LmHead>> make_trained_vocab_head(const HeadSpec& spec, const HeadFiles& artefacts) {
    DS_ASSIGN(HeadArtefact artefact, required_artefact(spec, artefacts));
    return std::unique_ptr<LmHead>(std::make_unique<TrainedVocabHead>(std::move(artefact), keeps_ends(spec)));
}

}  // namespace draftscope
