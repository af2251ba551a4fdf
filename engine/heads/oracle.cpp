#include "engine/heads/oracle.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/numel.h"
#include "engine/heads/factories.h"
#include "engine/heads/head_common.h"
#include "engine/heads/listed_rows.h"
#include "engine/heads/static_vocab.h"
#include "kernels/row_major_matrix.h"

namespace draftscope {
namespace {

struct OracleState final : HeadState {
    std::vector<std::vector<TokenId>> levels;  ///< per draft level, best first
    const std::vector<TokenId>* at(int level) const {
        return level >= 0 && level < static_cast<int>(levels.size()) ? &levels[level] : nullptr;
    }
};

/// The target's own top m as shortlist: the upper bound of every dynamic shortlist of size m (DynaSpec's
/// lemma 2). A what-if for replay, because the target's choices must be known in advance.
class OracleHead final : public LmHead {
  public:
    explicit OracleHead(int size) : size_(size) {}

    Status prepare(kernels::Backend& backend, const HeadWeights& weights) override {
        DS_TRY(check_weights(weights, "oracle"));
        weights_ = weights;
        store_ = kernels::RowMajorMatrix::make(backend.pool(), *weights.lm_head);
        return {};
    }

    std::unique_ptr<HeadState> begin_prompt(std::span<const TokenId>, Rows<const TokenId>) override {
        return std::make_unique<OracleState>();
    }

    CallShape shape(int, int) const override {
        return {.stride = size_, .support = size_, .per_row = true, .counted = true};
    }
    bool reserve(kernels::Backend& backend, int, int rows, int k) override {
        return listed_.reserve(backend, rows, size_, k);
    }
    void propose(HeadCall& call) override {
        for (const HeadSequence& sequence : call.sequences) {
            const std::vector<TokenId> ids = shortlist(sequence.state, call.level);
            // Calls use the tokens one after another.
            if (!tokens_.upload(call.backend, ids, lm_head_row_indices(weights_, ids), size_))
                return call.backend.set_out_of_memory("the tokens of a head");
            listed_.enqueue(call, sequence, store_, tokens_);
        }
    }

    HeadCost cost_at(const HeadState* state, int, int level) const override {
        const double rows = state == nullptr ? size_ : static_cast<double>(shortlist(state, level).size());
        const auto bytes = static_cast<std::uint64_t>(rows * static_cast<double>(store_.row_bytes()));
        return {rows, bytes, 2.0 * rows * weights_.hidden, Lane::critical, bytes};
    }

    ActiveSet active_set(const HeadState* state, int level, std::vector<TokenId>& memory) const override {
        if (state == nullptr) return tokens_of_lm_head(weights_);
        memory = shortlist(state, level);
        return {.ids = memory};
    }

  private:
    std::vector<TokenId> shortlist(const HeadState* state, int level) const {
        const auto* best = state == nullptr ? nullptr : static_cast<const OracleState&>(*state).at(level);
        if (best == nullptr) return {};
        std::vector<TokenId> ids(best->begin(),
                                 best->begin() + std::min<std::ptrdiff_t>(size_, std::ssize(*best)));
        std::erase_if(ids, [&](TokenId id) { return !lm_head_has(weights_, id); });
        std::sort(ids.begin(), ids.end());
        ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
        return ids;
    }

    int size_;
    HeadWeights weights_;
    kernels::RowMajorMatrix store_;
    ListedRows listed_;
    ListedTokens tokens_;
};

}  // namespace

void set_future_tokens(HeadState& state, Rows<const TokenId> best) {
    auto& oracle = static_cast<OracleState&>(state);
    oracle.levels.clear();
    for (int l = 0; l < best.rows; ++l) oracle.levels.emplace_back(best.row(l).begin(), best.row(l).end());
}

namespace {

constexpr HeadParam oracle_params[] = {
    {"m", 32, 1, 32, true,
     "the target's best tokens at each position, limited by those that a recording holds"},
};

Result<std::unique_ptr<LmHead>> make_oracle(const HeadSpec& spec, const HeadFiles&) {
    DS_ASSIGN(const int size, int_param(spec, "m", 32));
    return std::unique_ptr<LmHead>(std::make_unique<OracleHead>(size));
}

}  // namespace

HeadInfo describe_oracle() {
    return {.id = "oracle",
            .name = "Oracle (what-if)",
            .paper = "DynaSpec, arXiv 2510.13847, lemma 2: the target's best m tokens",
            .params = oracle_params,
            .rgb = 0x7F6BC4,
            .support = HeadSupport::dynamic,
            .make = make_oracle,
            .replay_only = true};
}

}  // namespace draftscope
