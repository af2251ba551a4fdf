#include "engine/heads/rdk.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/heads/rdk_device_head.h"
#include "engine/heads/registry.h"

namespace draftscope {
namespace {

/// One entry of an affinity row: a destination and its weight.
struct AffinityEntry {
    TokenId to = no_token;
    float weight = 0;
};

/// The sparse affinity matrix M by rows. A token without a row keeps its probability.
class AffinityMatrix {
  public:
    Status load(const HeadArtefact& artefact, int vocab);
    std::span<const AffinityEntry> row(TokenId token) const {
        const std::size_t first = first_[token];
        return std::span(entries_).subspan(first, first_[static_cast<std::size_t>(token) + 1] - first);
    }
    /// Tokens from which `token` receives probability.
    std::span<const TokenId> sources(TokenId token) const {
        const std::size_t first = sources_.first[token];
        const std::size_t end = sources_.first[static_cast<std::size_t>(token) + 1];
        return std::span(sources_.tokens).subspan(first, end - first);
    }
    const RdkDeviceHead::Givers& all_sources() const { return sources_; }
    std::uint64_t bytes_per_row() const { return width_ * sizeof(AffinityEntry); }

  private:
    void list_sources(std::size_t vocab);

    std::size_t width_ = 1;
    std::vector<AffinityEntry> entries_;
    std::vector<std::size_t> first_;  ///< [V + 1]
    RdkDeviceHead::Givers sources_;
};

Status AffinityMatrix::load(const HeadArtefact& artefact, int vocab) {
    std::vector<TokenId> ids;
    if (artefact.tensors().find("ids") != nullptr) {
        DS_ASSIGN(ids, artefact.ascending_ids("ids"));
    } else {
        for (TokenId id = 0; id < vocab; ++id) ids.push_back(id);
    }
    const TensorInfo* weights = artefact.tensors().find("weights");
    DS_ASSIGN(const auto neighbours, artefact.tensors().read_integers("neighbours"));
    if (weights == nullptr || weights->shape.size() != 2 || weights->cols() < 1 || weights->cols() > vocab ||
        weights->rows() != static_cast<std::int64_t>(ids.size()) ||
        neighbours.size() != ids.size() * weights->cols())
        return bad_input("{}: tensors 'neighbours' and 'weights' must both have shape [{}, n]",
                         artefact.path(), ids.size());
    width_ = weights->cols();
    std::vector<float> values(width_);
    std::size_t next = 0;
    for (TokenId token = 0; token < vocab; ++token) {
        first_.push_back(entries_.size());
        if (next == ids.size() || ids[next] != token) {
            entries_.push_back({token, 1.0f});
            continue;
        }
        artefact.tensors().read_row(*weights, static_cast<std::int64_t>(next), values.data());
        double sum = 0;
        for (const float value : values) {
            if (!(value >= 0))
                return bad_input(
                    "{}: tensor 'weights' contains {} for "
                    "token {}, expected a value of at least 0",
                    artefact.path(), value, token);
            sum += static_cast<double>(value);
        }
        if (!(std::abs(sum - 1) < 0.01))
            return bad_input("{}: tensor 'weights' sums to {} for token {}, expected 1", artefact.path(), sum,
                             token);
        for (std::size_t i = 0; i < width_; ++i) {
            const std::int64_t to = neighbours[next * width_ + i];
            if (to < 0 || to >= vocab)
                return bad_input(
                    "{}: tensor 'neighbours' contains {} "
                    "for token {}, which is not a token id",
                    artefact.path(), to, token);
            if (values[i] > 0)
                entries_.push_back(
                    {static_cast<TokenId>(to), static_cast<float>(static_cast<double>(values[i]) / sum)});
        }
        ++next;
    }
    first_.push_back(entries_.size());
    list_sources(vocab);
    return {};
}

void AffinityMatrix::list_sources(std::size_t vocab) {
    std::vector<std::int32_t>& first = sources_.first;
    first.assign(vocab + 1, 0);
    for (const AffinityEntry& entry : entries_) ++first[static_cast<std::size_t>(entry.to) + 1];
    for (std::size_t t = 0; t < vocab; ++t) first[t + 1] += first[t];
    sources_.tokens.resize(entries_.size());
    sources_.weights.resize(entries_.size());
    std::vector<std::int32_t> at(first.begin(), first.end() - 1);
    for (std::size_t t = 0; t < vocab; ++t)
        for (const AffinityEntry& entry : row(static_cast<TokenId>(t))) {
            const std::size_t to = at[entry.to]++;
            sources_.tokens[to] = static_cast<TokenId>(t);
            sources_.weights[to] = entry.weight;
        }
}

class RdkHead final : public LmHead {
  public:
    RdkHead(std::unique_ptr<LmHead> base, HeadArtefact artefact)
        : LmHead(base->target_tokens()), base_(std::move(base)), artefact_(std::move(artefact)) {}

    Status prepare(kernels::Exec& exec, const HeadWeights& weights) override {
        DS_TRY(base_->prepare(exec, weights));
        DS_TRY(artefact_.fits(weights));
        vocab_ = weights.vocab;
        mass_.assign(vocab_, 0.0);
        affinity_ = {};
        DS_TRY(affinity_.load(artefact_, vocab_));
        device_head_.set(*base_, affinity_.all_sources());
        return {};
    }

    std::unique_ptr<HeadState> make_state() const override { return base_->make_state(); }
    void begin_prompt(HeadState* state, std::span<const TokenId> prompt, Rows<const TokenId> best) override {
        base_->begin_prompt(state, prompt, best);
    }
    void begin_round(ProposeContext& context, std::span<HeadState* const> states) override {
        base_->begin_round(context, states);
    }
    void begin_level(ProposeContext& context, Rows<const float> embeddings, Rows<const float> parents,
                     std::span<HeadState* const> states) override {
        base_->begin_level(context, embeddings, parents, states);
    }
    void on_verified(HeadState* state, const DraftTree& tree, const Outcome& outcome) override {
        base_->on_verified(state, tree, outcome);
    }

    void propose(ProposeContext& context, Rows<const float> hidden, std::span<HeadState* const> states, int k,
                 Proposal& out) override {
        base_support_.clear();
        ProposeContext inner{context.exec, context.phases, context.level, &base_support_,
                             context.temperature};
        base_->propose(inner, hidden, states, k, out);
        PhaseScope scope(context.phases, Phase::topk, context.level, hidden.rows);
        const float temperature = context.temperature > 0 ? static_cast<float>(context.temperature) : 1.0f;
        out.resize(hidden.rows, k);
        for (int r = 0; r < hidden.rows; ++r) {
            const SparseLogits& row = base_support_[r];
            redistribute(row, temperature);
            scope.add_bytes(row.logits.size() * affinity_.bytes_per_row());
            SparseLogits& redistributed_row =
                context.support != nullptr ? context.support->add() : redistributed_;
            take(temperature, redistributed_row);
            select_top_tokens(redistributed_row, r, out);
        }
    }

    DeviceHead* device_head() override { return &device_head_; }
    HeadCost cost_at(const HeadState* state, int rows, int level) const override {
        return with_affinity(base_->cost_at(state, rows, level));
    }
    bool covers(const HeadState* state, TokenId token, int level) const override {
        if (token < 0 || token >= vocab_) return false;
        const auto sources = affinity_.sources(token);
        return std::any_of(sources.begin(), sources.end(),
                           [&](TokenId giver) { return base_->covers(state, giver, level); });
    }

  private:
    HeadCost with_affinity(HeadCost cost) const {
        cost.bytes += static_cast<std::uint64_t>(cost.active_rows) * affinity_.bytes_per_row();
        cost.flops_per_row += 2.0 * cost.active_rows;
        return cost;
    }
    /// mass_ += softmax(row / temperature) M.
    void redistribute(const SparseLogits& row, float temperature) {
        if (row.logits.empty()) return;
        const float best = *std::max_element(row.logits.begin(), row.logits.end());
        double sum = 0;
        for (const float logit : row.logits)
            sum += std::exp(static_cast<double>((logit - best) / temperature));
        for (std::size_t i = 0; i < row.logits.size(); ++i) {
            const double q = std::exp(static_cast<double>((row.logits[i] - best) / temperature)) / sum;
            const TokenId from = row.ids.empty() ? static_cast<TokenId>(i) : row.ids[i];
            for (const AffinityEntry& entry : affinity_.row(from))
                mass_[entry.to] += q * static_cast<double>(entry.weight);
        }
    }
    /// Moves mass_ to `row`, as logits whose softmax at `temperature` it is.
    void take(float temperature, SparseLogits& row) {
        row.ids.clear();
        row.logits.clear();
        for (TokenId id = 0; id < vocab_; ++id) {
            double& mass = mass_[id];
            if (mass > 0) {
                row.ids.push_back(id);
                row.logits.push_back(temperature * static_cast<float>(std::log(mass)));
            }
            mass = 0;
        }
    }
    void select_top_tokens(const SparseLogits& row, int at, Proposal& out) {
        const std::size_t r = at;
        order_.resize(row.ids.size());
        for (std::size_t i = 0; i < order_.size(); ++i) order_[i] = i;
        const std::size_t kept = std::min(static_cast<std::size_t>(out.k), order_.size());
        std::partial_sort(order_.begin(), order_.begin() + static_cast<std::ptrdiff_t>(kept), order_.end(),
                          [&](std::size_t a, std::size_t b) {
                              return row.logits[a] != row.logits[b] ? row.logits[a] > row.logits[b] : a < b;
                          });
        out.counts[r] = static_cast<int>(kept);
        double sum = 0;
        for (const float logit : row.logits) sum += std::exp(static_cast<double>(logit));
        out.logsumexp[r] = row.logits.empty() ? 0.0f : static_cast<float>(std::log(sum));
        for (std::size_t i = 0; i < kept; ++i) {
            out.ids[r * out.k + i] = row.ids[order_[i]];
            out.logits[r * out.k + i] = row.logits[order_[i]];
        }
    }

    std::unique_ptr<LmHead> base_;
    HeadArtefact artefact_;
    AffinityMatrix affinity_;
    RdkDeviceHead device_head_;
    int vocab_ = 0;
    std::vector<double> mass_;  ///< [V] scratch, zeros between rows
    // Scratch of single calls.
    ReusableVector<SparseLogits> base_support_;  ///< of the base head
    SparseLogits redistributed_;
    std::vector<std::size_t> order_;
};

}  // namespace

std::unique_ptr<LmHead> make_rdk_head(std::unique_ptr<LmHead> base, HeadArtefact affinity) {
    return std::make_unique<RdkHead>(std::move(base), std::move(affinity));
}

Result<HeadArtefact> required_affinity(const HeadSpec& spec, const HeadFiles& artefacts) {
    if (artefacts.affinity_path.empty())
        return bad_input(
            "head {}: +rdk needs a token affinity; "
            "make one with draftscope fit rdk and "
            "pass it with --head-weights rdk=FILE",
            to_text(spec));
    return HeadArtefact::open(artefacts.affinity_path, rdk_suffix().id);
}

const HeadInfo& rdk_suffix() {
    static const HeadInfo suffix = {.id = "rdk",
                                    .name = "+rdk",
                                    .paper = "OOV redistribution, arXiv 2506.03206",
                                    .required_file = RequiredFile::fitted,
                                    .artefact = "token affinity",
                                    .fit = {.weights = FitRecipe::Weights::affinity}};
    return suffix;
}

}  // namespace draftscope
