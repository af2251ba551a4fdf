#include <algorithm>
#include <utility>

#include "engine/heads/factories.h"
#include "engine/heads/head_common.h"
#include "engine/heads/linear_lm_head.h"
#include "engine/heads/static_vocab.h"
#include "engine/heads/trimmed_head.h"

namespace draftscope {
namespace {

// The paper's schedule is not published, except that early levels are larger and that the mean is 31,739 of
// 128,256. These parts of the vocabulary have that mean over the six levels of paper:dynaspec.
constexpr int default_parts[] = {2, 3, 4, 6, 8, 9};

/// PA-FR (DynaSpec, appendix A.1): FR-Spec with one size per draft level, larger where a draft is more likely
/// to be reached. The paper stores one matrix and multiplies a prefix of it. Here each size has a matrix with
/// ascending ids, so that ties go to the lower token. Both read the same bytes per level.
class PaFrHead final : public LinearLmHead {
  public:
    PaFrHead(std::vector<TokenId> ranking, std::vector<int> sizes, bool keep_ends)
        : ranking_(std::move(ranking)), sizes_(std::move(sizes)), keep_ends_(keep_ends) {}

    Status prepare(kernels::Backend& backend, const HeadWeights& all) override {
        const HeadWeights weights = with_ends(all, keep_ends_);
        DS_TRY(check_weights(weights, "pa-fr"));
        std::vector<int> sizes = sizes_;
        if (sizes.empty())
            for (const int parts : default_parts) sizes.push_back(vocab_fraction(weights.vocab, parts));
        std::vector<int> distinct;
        vocabs_.clear();
        levels_.clear();
        for (const int size : sizes) {
            const auto known = std::find(distinct.begin(), distinct.end(), size);
            levels_.push_back(known - distinct.begin());
            if (known != distinct.end()) continue;
            distinct.push_back(size);
            DS_ASSIGN(StaticVocab vocab, StaticVocab::make(backend, weights, ranking_, size, "pa-fr"));
            vocabs_.push_back(std::move(vocab));
        }
        return {};
    }

    HeadProduct product(int level) const override {
        const StaticVocab& vocab = at(level);
        return {nullptr, &vocab.rows(), vocab.size(), vocab.ids()};
    }

  private:
    const StaticVocab& at(int level) const {
        const std::size_t last = levels_.size() - 1;
        return vocabs_[levels_[std::min(static_cast<std::size_t>(std::max(level, 0)), last)]];
    }

    std::vector<TokenId> ranking_;
    std::vector<int> sizes_;  ///< per level, the last one for all deeper levels; empty = our default
    bool keep_ends_;
    std::vector<StaticVocab> vocabs_;
    std::vector<std::size_t> levels_;  ///< index into vocabs_ per level
};

constexpr HeadParam pa_fr_params[] = {
    {"v", 0, 1, 1 << 20, true,
     "tokens kept per draft level, the last value for all deeper levels, 16384/8192; default (ours): 1/2, "
     "1/3, 1/4, 1/6, 1/8 and 1/9 of the vocabulary, whose mean over six levels is the paper's",
     true},
    eos_param,
    softmax_param,
};

Result<std::unique_ptr<LmHead>> make_pa_fr(const HeadSpec& spec, const HeadFiles& artefacts) {
    DS_ASSIGN(auto sizes, int_list_param(spec, "v"));
    DS_ASSIGN(const std::string path, required_ranking(artefacts, spec.id));
    DS_ASSIGN(auto ranking, load_ranking(path, spec.id));
    return std::unique_ptr<LmHead>(
        std::make_unique<PaFrHead>(std::move(ranking), std::move(sizes), keeps_ends(spec)));
}

}  // namespace

HeadInfo describe_pa_fr() {
    return {.id = "pa-fr",
            .name = "PA-FR",
            .paper = "DynaSpec, arXiv 2510.13847, appendix A.1",
            .params = pa_fr_params,
            .size = vocab_size_param,
            .rgb = 0x4C9FD1,
            .required_file = RequiredFile::ranking,
            .artefact = "token ranking (safetensors with 'ids')",
            .fit = {.kinds = FitRecipe::raw_text},
            .make = make_pa_fr};
}

}  // namespace draftscope
