#include <algorithm>
#include <limits>

#include "base/numel.h"
#include "engine/draft/decoding_heads.h"
#include "engine/heads/candidates.h"
#include "kernels/matmul.h"

namespace draftscope {
namespace {

class LevelLmHeads final : public LmHead {
  public:
    LevelLmHeads(std::span<const LevelLmHead> heads, int tokens) : heads_(heads), tokens_(tokens) {}

    Status prepare(kernels::Exec&, const HeadWeights&) override { return {}; }

    void propose(ProposeContext& context, Rows<const float> hidden, std::span<HeadState* const>, int k,
                 Proposal& out) override {
        const LevelLmHead& head = at(context.level);
        dense_.propose(context, *head.matrix, head.bias, tokens_, {}, hidden, k, head.matrix->bytes(), out);
    }

    std::optional<LinearHead> as_linear(int level) const override {
        const LevelLmHead& head = at(level);
        LinearHead direct{nullptr, head.matrix, tokens_, {}};
        if (head.bias != nullptr) direct.bias = {head.bias, static_cast<std::size_t>(head.matrix->n())};
        return direct;
    }

    HeadCost cost_at(const HeadState*, int, int) const override {
        return matrix_cost(*heads_.front().matrix);
    }
    bool covers(const HeadState*, TokenId token, int) const override { return token >= 0 && token < tokens_; }

    void scores(kernels::Exec& exec, Rows<const float> hidden, const HeadState*, int level,
                Rows<float> out) override {
        const Rows<float> logits = buffer(hidden.rows);
        kernels::matmul(exec, *at(level).matrix, hidden, logits, at(level).bias);
        for (int r = 0; r < out.rows; ++r) {
            const std::span<float> row = out.row(r);
            std::fill(row.begin(), row.end(), -std::numeric_limits<float>::infinity());
            std::copy_n(logits.row_data(r), std::min(tokens_, out.cols), row.data());
        }
    }

  private:
    const LevelLmHead& at(int level) const { return heads_[level]; }
    Rows<float> buffer(int rows) {
        const int n = heads_.front().matrix->n();
        logits_.resize(numel(rows, n));
        return {logits_.data(), rows, n};
    }

    std::span<const LevelLmHead> heads_;
    int tokens_;  ///< real ids; the remaining rows are padding
    LinearProposer dense_;
    std::vector<float> logits_;
};

}  // namespace

std::unique_ptr<LmHead> make_level_lm_heads(std::span<const LevelLmHead> heads, const Target& target) {
    const Tokenizer* tokenizer = target.tokenizer();
    const int tokens = tokenizer == nullptr ? target.config().vocab : tokenizer->size();
    return std::make_unique<LevelLmHeads>(heads, std::min(tokens, heads.front().matrix->n()));
}

}  // namespace draftscope
