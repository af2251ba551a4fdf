#include "engine/heads/trimmed_head.h"

#include <utility>

#include "engine/heads/factories.h"
#include "engine/heads/head_common.h"
#include "engine/heads/linear_lm_head.h"
#include "engine/heads/static_vocab.h"

namespace draftscope {
namespace {

class TrimmedHead final : public LinearLmHead {
  public:
    TrimmedHead(const HeadSpec& spec, std::vector<TokenId> ranking, SizeRule size)
        : id_(spec.id), keep_ends_(keeps_ends(spec)), ranking_(std::move(ranking)), size_(std::move(size)) {}

    Status prepare(kernels::Backend& backend, const HeadWeights& all) override {
        const HeadWeights weights = with_ends(all, keep_ends_);
        DS_TRY(check_weights(weights, id_));
        DS_ASSIGN(const int size, size_(weights));
        DS_ASSIGN(vocab_, StaticVocab::make(backend, weights, ranking_, size, id_));
        return {};
    }

    HeadProduct product(int) const override { return {nullptr, &vocab_.rows(), vocab_.size(), vocab_.ids()}; }

  private:
    std::string id_;
    bool keep_ends_;
    std::vector<TokenId> ranking_;
    SizeRule size_;
    StaticVocab vocab_;
};

}  // namespace

std::unique_ptr<LmHead> make_trimmed_head(const HeadSpec& spec, std::vector<TokenId> ranking, SizeRule size) {
    return std::make_unique<TrimmedHead>(spec, std::move(ranking), std::move(size));
}

Result<std::unique_ptr<LmHead>> make_trimmed_head_from_ranking(const HeadSpec& spec,
                                                               const HeadFiles& artefacts) {
    DS_ASSIGN(SizeRule size, size_from_spec(spec));
    DS_ASSIGN(const std::string path, required_ranking(artefacts, spec.id));
    DS_ASSIGN(auto ranking, load_ranking(path, spec.id));
    return make_trimmed_head(spec, std::move(ranking), std::move(size));
}

Result<SizeRule> size_from_spec(const HeadSpec& spec) {
    DS_ASSIGN(const int size, whole_param(spec, "v", 0));
    return SizeRule([size](const HeadWeights& weights) -> Result<int> {
        return size > 0 ? size : vocab_fraction(weights.vocab, 4);
    });
}

Result<std::string> required_ranking(const HeadFiles& artefacts, std::string_view head) {
    if (artefacts.ranking_path.empty())
        return bad_input(
            "head {0}: needs a token ranking; pass --head-weights {0}=FILE "
            "(safetensors with 'ids', most frequent first, or FR-Spec's freq_V.pt)",
            head);
    return artefacts.ranking_path;
}

}  // namespace draftscope
