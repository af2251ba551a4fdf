#include <algorithm>
#include <limits>
#include <optional>

#include "engine/heads/candidates.h"
#include "engine/heads/factories.h"
#include "engine/heads/static_vocab.h"
#include "kernels/matmul.h"

namespace draftscope {
namespace {

/// A quarter of the vocabulary, in steps of 64 rows (our default; see the registry).
int default_size(int vocab) {
    return std::min(vocab, (vocab / 4 + 63) / 64 * 64);
}

/// FR-Spec (arXiv 2502.14856, section 3.2): the LM head cut to the tokens most frequent in raw text. Kept
/// logits are those of the full head, bit for bit.
class FrSpecHead final : public Head {
  public:
    FrSpecHead(std::vector<TokenId> ranking, int size) : ranking_(std::move(ranking)), size_(size) {}

    Status prepare(kernels::Exec& exec, const HeadWeights& weights) override {
        if (weights.lm_head == nullptr || weights.vocab < 1 ||
            (weights.row_ids.empty() && weights.vocab > weights.lm_head->n()))
            return failed("head fr-spec: no LM head for {} tokens", weights.vocab);
        const int size = size_ > 0 ? size_ : default_size(weights.vocab);
        DS_ASSIGN(vocab_, StaticVocab::make(exec, weights, ranking_, size, "fr-spec"));
        return {};
    }

    void propose(ProposeContext& context, Rows<const float> hidden, std::span<HeadState* const>, int k,
                 Proposal& out) override {
        {
            PhaseScope scope(context.phases, Phase::head, context.level, hidden.rows, vocab_.rows().bytes());
            compute(context.exec, hidden);
        }
        const Rows<const float> logits(logits_.data(), hidden.rows, vocab_.size());
        select_candidates(context, logits, vocab_.size(), k, out);
        PhaseScope gather(context.phases, Phase::gather, context.level, hidden.rows);
        PhaseScope remap(context.phases, Phase::remap, context.level, hidden.rows,
                         out.ids.size() * 2 * sizeof(TokenId));
        for (TokenId& id : out.ids)
            if (id != no_token) id = vocab_.ids()[static_cast<std::size_t>(id)];
    }

    HeadCost cost(int) const override {
        const kernels::Matrix& rows = vocab_.rows();
        return {static_cast<double>(rows.n()), rows.bytes(),
                2.0 * static_cast<double>(rows.n()) * static_cast<double>(rows.k()), Lane::critical};
    }

    bool covers(const HeadState*, TokenId token, int) const override { return vocab_.has(token); }

    void scores(kernels::Exec& exec, Rows<const float> hidden, Rows<float> out) override {
        compute(exec, hidden);
        const auto columns = static_cast<std::size_t>(vocab_.size());
        for (int r = 0; r < out.rows; ++r) {
            const std::span<float> row = out.row(r);
            const float* logits = logits_.data() + static_cast<std::size_t>(r) * columns;
            std::fill(row.begin(), row.end(), -std::numeric_limits<float>::infinity());
            for (std::size_t i = 0; i < columns; ++i)
                row[static_cast<std::size_t>(vocab_.ids()[i])] = logits[i];
        }
    }

  private:
    void compute(kernels::Exec& exec, Rows<const float> hidden) {
        logits_.resize(static_cast<std::size_t>(hidden.rows) * static_cast<std::size_t>(vocab_.size()));
        kernels::matmul(exec, vocab_.rows(), hidden, Rows<float>(logits_.data(), hidden.rows, vocab_.size()));
    }

    std::vector<TokenId> ranking_;
    int size_;  ///< 0 = default_size of the target
    StaticVocab vocab_;
    std::vector<float> logits_;
};

}  // namespace

Result<std::unique_ptr<Head>> make_fr_spec_head(const HeadSpec& spec, const HeadArtefacts& artefacts) {
    DS_ASSIGN(const int size, whole_param(spec, "v", 0));
    if (artefacts.ranking_path.empty())
        return bad_input(
            "head fr-spec: needs a token ranking; give --artefact fr-spec=FILE (safetensors with `ids`, most "
            "frequent first)");
    DS_ASSIGN(auto ranking, load_ranking(artefacts.ranking_path, "fr-spec"));
    return std::unique_ptr<Head>(std::make_unique<FrSpecHead>(std::move(ranking), size));
}

}  // namespace draftscope
