#include <algorithm>
#include <utility>
#include <vector>

#include "engine/heads/artefact.h"
#include "engine/heads/factories.h"
#include "engine/heads/head_common.h"
#include "engine/heads/linear_lm_head.h"
#include "engine/heads/synthetic_artefact.h"
#include "engine/heads/trimmed_head.h"

namespace draftscope {
namespace {

/// VocabTrim-T (named so in SlimSpec's comparison): a separate LM head for a trimmed vocabulary. It is
/// trained with the target's distribution renormalised over the kept tokens.
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

// Fitting determines these parameters; a given size must match the artefact.
constexpr HeadParam vocabtrim_t_params[] = {
    {"v", 0, 1, 1 << 20, true, "tokens kept; default: as many as its file has"},
    eos_param,
    softmax_param,
};

/// Adds tokens spread evenly over the vocabulary.
Status synthesize_vocabtrim_t(SyntheticBuilder& builder) {
    const int tokens = builder.shape.tokens;
    DS_ASSIGN(const int size, int_param(builder.spec, "v", std::max(1, tokens / 4 / 64 * 64)));
    if (size > tokens)
        return bad_input("head {}: v={} does not fit the target, which has {} tokens", builder.spec.id, size,
                         tokens);
    std::vector<std::int64_t> ids;
    for (std::int64_t i = 0; i < size; ++i) ids.push_back(i * tokens / size);
    builder.integers["ids"] = std::move(ids);
    builder.matrices.push_back({"weight", {size, builder.shape.hidden}});
    builder.info.parameters["v"] = std::to_string(size);
    return {};
}

}  // namespace

Result<std::unique_ptr<LmHead>> make_trained_vocab_head(const HeadSpec& spec, const HeadFiles& artefacts) {
    DS_ASSIGN(HeadArtefact artefact, required_artefact(spec, artefacts));
    return std::unique_ptr<LmHead>(std::make_unique<TrainedVocabHead>(std::move(artefact), keeps_ends(spec)));
}

HeadInfo describe_vocabtrim_t() {
    return {.id = "vocabtrim-t",
            .name = "VocabTrim-T",
            .paper = "VocabTrim trained, as in SlimSpec, arXiv 2605.10453",
            .params = vocabtrim_t_params,
            .size = vocab_size_param,
            .rgb = 0x8FCBEB,
            .required_file = RequiredFile::fitted,
            .artefact = "trained trimmed head",
            .fit = {.kinds = FitRecipe::trimmed_rows},
            .synthesize = synthesize_vocabtrim_t,
            .make = make_trained_vocab_head};
}

}  // namespace draftscope
