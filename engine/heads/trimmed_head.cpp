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

// FR-Spec's paper gives sizes per model; its best size for Llama-3-8B is a quarter of the vocabulary (32k of
// 128k). VocabTrim has the same default, so that the two heads differ in their rankings only.
constexpr HeadParam trimmed_params[] = {
    {"v", 0, 1, 1 << 20, true, "tokens kept, most frequent first; default: a quarter of the vocabulary"},
    eos_param,
    softmax_param,
};

Result<std::unique_ptr<LmHead>> make_from_ranking(const HeadSpec& spec, const HeadFiles& artefacts) {
    DS_ASSIGN(const int size, int_param(spec, "v", 0));
    DS_ASSIGN(const std::string path, required_ranking(artefacts, spec.id));
    DS_ASSIGN(auto ranking, load_ranking(path, spec.id));
    return make_trimmed_head(spec, std::move(ranking), [size](const HeadWeights& weights) -> Result<int> {
        return size > 0 ? size : vocab_fraction(weights.vocab, 4);
    });
}

HeadInfo describe_trimmed() {
    HeadInfo info;
    info.params = trimmed_params;
    info.size = vocab_size_param;
    info.size.default_parts = 4;
    info.required_file = RequiredFile::ranking;
    info.make = make_from_ranking;
    return info;
}

}  // namespace

/// FR-Spec (arXiv 2502.14856, section 3.2): the LM head trimmed to the most frequent tokens of raw text.
HeadInfo describe_fr_spec() {
    HeadInfo info = describe_trimmed();
    info.id = "fr-spec";
    info.name = "FR-Spec";
    info.paper = "FR-Spec, arXiv 2502.14856";
    info.rgb = 0x0072B2;
    info.artefact = "token ranking from raw text (safetensors with 'ids')";
    info.fit = {.kinds = FitRecipe::raw_text};
    return info;
}

/// VocabTrim (arXiv 2506.22694): FR-Spec's mechanism, with tokens counted in the target's own output.
HeadInfo describe_vocabtrim() {
    HeadInfo info = describe_trimmed();
    info.id = "vocabtrim";
    info.name = "VocabTrim";
    info.paper = "VocabTrim, arXiv 2506.22694";
    info.rgb = 0x56B4E9;
    info.artefact = "token ranking from the target's generations (safetensors with 'ids')";
    info.fit = {.kinds = FitRecipe::generations};
    return info;
}

std::unique_ptr<LmHead> make_trimmed_head(const HeadSpec& spec, std::vector<TokenId> ranking, SizeRule size) {
    return std::make_unique<TrimmedHead>(spec, std::move(ranking), std::move(size));
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
