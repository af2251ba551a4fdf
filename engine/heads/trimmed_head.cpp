#include "engine/heads/trimmed_head.h"

#include <algorithm>
#include <utility>

#include "engine/heads/candidates.h"
#include "engine/heads/factories.h"
#include "engine/heads/static_vocab.h"

namespace draftscope {
namespace {

class StaticHead final : public Head {
  public:
    StaticHead(std::string id, std::vector<TokenId> ranking, SizeRule size)
        : id_(std::move(id)), ranking_(std::move(ranking)), size_(std::move(size)) {}

    Status prepare(kernels::Exec& exec, const HeadWeights& weights) override {
        DS_TRY(check_weights(weights, id_));
        DS_ASSIGN(const int size, size_(weights));
        DS_ASSIGN(vocab_, StaticVocab::make(exec, weights, ranking_, size, id_));
        return {};
    }

    void propose(ProposeContext& context, Rows<const float> hidden, std::span<HeadState* const>, int k,
                 Proposal& out) override {
        propose_rows(context, vocab_.rows(), vocab_.ids(), hidden, k, dense_, out);
    }

    std::optional<DirectHead> direct(int) const override {
        return DirectHead{nullptr, &vocab_.rows(), vocab_.rows().n(), vocab_.ids()};
    }

    HeadCost cost(int) const override { return cost_of(vocab_.rows()); }

    bool covers(const HeadState*, TokenId token, int) const override { return vocab_.has(token); }

    bool active_ids(const HeadState*, int, std::vector<TokenId>& out) const override {
        out = vocab_.ids();
        return true;
    }

    void scores(kernels::Exec& exec, Rows<const float> hidden, const HeadState*, int,
                Rows<float> out) override {
        score_rows(exec, vocab_.rows(), vocab_.ids(), hidden, logits_, out);
    }

  private:
    std::string id_;
    std::vector<TokenId> ranking_;
    SizeRule size_;
    StaticVocab vocab_;
    DenseProposal dense_;
    std::vector<float> logits_;
};

}  // namespace

std::unique_ptr<Head> make_static_head(std::string id, std::vector<TokenId> ranking, SizeRule size) {
    return std::make_unique<StaticHead>(std::move(id), std::move(ranking), std::move(size));
}

Result<std::unique_ptr<Head>> make_ranked_head(const HeadSpec& spec, const HeadArtefacts& artefacts) {
    DS_ASSIGN(SizeRule size, size_from_spec(spec));
    DS_ASSIGN(const std::string path, needed_ranking(artefacts, spec.id));
    DS_ASSIGN(auto ranking, load_ranking(path, spec.id));
    return make_static_head(spec.id, std::move(ranking), std::move(size));
}

Result<SizeRule> size_from_spec(const HeadSpec& spec) {
    DS_ASSIGN(const int size, whole_param(spec, "v", 0));
    return SizeRule([size](const HeadWeights& weights) -> Result<int> {
        return size > 0 ? size : part_of_vocab(weights.vocab, 4);
    });
}

Result<std::string> needed_ranking(const HeadArtefacts& artefacts, std::string_view head) {
    if (artefacts.ranking_path.empty())
        return bad_input(
            "head {0}: needs a token ranking; pass --head-weights {0}=FILE "
            "(safetensors with 'ids', most frequent first, or FR-Spec's freq_V.pt)",
            head);
    return artefacts.ranking_path;
}

}  // namespace draftscope
