#include "engine/heads/rdk.h"

#include <algorithm>
#include <utility>

#include "base/numel.h"
#include "engine/heads/affinity_matrix.h"
#include "engine/heads/head_common.h"
#include "engine/heads/registry.h"

namespace draftscope {
namespace {

/// Size of the scratch memory of rows that are redistributed together: enough to use a whole device.
constexpr std::size_t max_mass_bytes = std::size_t{64} << 20;

/// Redistributes the rows of a base head over the vocabulary. If the base head selects its tokens in its
/// call, the level's set holds the tokens that receive probability from them. The base head's own set is
/// stored after it.
class RdkHead final : public LmHead {
  public:
    RdkHead(std::unique_ptr<LmHead> base, HeadArtefact artefact)
        : LmHead(base->needs()), base_(std::move(base)), artefact_(std::move(artefact)) {}

    Status prepare(kernels::Backend& backend, const HeadWeights& weights) override {
        DS_TRY(base_->prepare(backend, weights));
        DS_TRY(artefact_.fits(weights));
        vocab_ = weights.vocab;
        DS_ASSIGN(AffinityMatrix matrix, AffinityMatrix::load(artefact_, vocab_));
        affinity_.set(std::move(matrix));
        return {};
    }

    std::unique_ptr<HeadState> begin_prompt(std::span<const TokenId> prompt,
                                            Rows<const TokenId> best) override {
        return base_->begin_prompt(prompt, best);
    }
    void on_verified(HeadState* state, const DraftTree& tree, const Outcome& outcome) override {
        base_->on_verified(state, tree, outcome);
    }

    /// The sizes of the base head's sets follow the values that it downloads itself.
    CallShape shape(int level, int rows) const override {
        const CallShape inner = base_->shape(level, rows);
        return {.stride = vocab_,
                .support = vocab_,
                .set = inner.set == 0 ? 0 : vocab_ + inner.set,
                .downloads = inner.downloads + (inner.set == 0 ? 0 : rows)};
    }
    bool reserve(kernels::Backend& backend, int levels, int rows, int k) override;
    void begin(HeadCall& call) override { base_->begin(call); }
    void propose(HeadCall& call) override;
    void collect(const HeadReadback& back) override;

    HeadCost cost_at(const HeadState* state, int rows, int level) const override {
        HeadCost cost = base_->cost_at(state, rows, level);
        cost.bytes += static_cast<std::uint64_t>(cost.active_rows) * affinity_.matrix().width *
                      (sizeof(TokenId) + sizeof(float));
        cost.flops_per_row += 2.0 * cost.active_rows;
        return cost;
    }
    ActiveSet active_set(const HeadState* state, int level, std::vector<TokenId>& memory) const override;

  private:
    /// Returns the call's sequences for the base head, whose sets follow the tokens that they reach.
    std::span<const HeadSequence> own_sequences(const HeadCall& call);
    void reach(kernels::Backend& backend, const HeadSequence& from, int capacity, const HeadSequence& to);
    int rows_at_a_time() const;
    std::uint64_t affinity_bytes(const HeadCall& call) const;
    /// Enqueues the redistribution of the rows in logits_ to `out`.
    void spread(kernels::Backend& backend, kernels::RedistributeOp op, float* out, std::int64_t out_stride);

    std::unique_ptr<LmHead> base_;
    HeadArtefact artefact_;
    DeviceAffinity affinity_;
    int vocab_ = 0;
    SupportColumns columns_;  ///< of the base head
    std::vector<HeadSequence> inner_sequences_;
    kernels::DeviceArray<std::int32_t> tokens_, d_sizes_;
    kernels::DeviceArray<float> logits_, spread_;
    kernels::DeviceArray<double> mass_;
    kernels::DeviceArray<std::uint32_t> bits_;
    kernels::DeviceArray<std::byte> scratch_;
};

/// The tokens that get probability from those of the base head.
ActiveSet RdkHead::active_set(const HeadState* state, int level, std::vector<TokenId>& memory) const {
    std::vector<TokenId> own_memory;
    const ActiveSet inner = base_->active_set(state, level, own_memory);
    std::vector<bool> reached(vocab_);
    const auto reach_targets = [&](TokenId token) {
        for (const TokenId target : affinity_.matrix().targets.row(token)) reached[target] = true;
    };
    for (const TokenId token : inner.ids) reach_targets(token);
    for (TokenId token = 0; inner.ids.empty() && token < inner.all_below; ++token) reach_targets(token);
    memory.clear();
    memory.reserve(vocab_);
    for (TokenId token = 0; token < vocab_; ++token)
        if (reached[token]) memory.push_back(token);
    return {.ids = memory};
}

int RdkHead::rows_at_a_time() const {
    return static_cast<int>(std::max<std::size_t>(max_mass_bytes / (numel(1, vocab_) * sizeof(double)), 1));
}

bool RdkHead::reserve(kernels::Backend& backend, int levels, int rows, int k) {
    columns_ = base_->support_columns(levels);
    const std::size_t size = numel(rows, columns_.stride);
    return base_->reserve(backend, levels, rows, 1) && affinity_.upload(backend) &&
           logits_.resize_at_least(backend, size) && tokens_.resize_at_least(backend, size) &&
           d_sizes_.resize_at_least(backend, numel(rows, 1)) &&
           mass_.resize_at_least(backend, numel(std::min(rows, rows_at_a_time()), vocab_)) &&
           spread_.resize_at_least(backend, numel(rows, vocab_)) &&
           scratch_.resize_at_least(backend, kernels::topk_scratch_bytes(rows, vocab_, k)) &&
           bits_.resize_at_least(backend, numel(2, (vocab_ + 31) / 32));
}

void RdkHead::spread(kernels::Backend& backend, kernels::RedistributeOp op, float* out,
                     std::int64_t out_stride) {
    op.vocab = vocab_;
    affinity_.set_matrix(op);
    op.scratch = mass_.as<double>();
    op.out_stride = out_stride;
    const int rows = op.rows;
    const std::int32_t *const tokens = op.tokens, *const sizes = op.sizes;
    for (int first = 0; first < rows; first += op.rows) {
        op.rows = std::min(rows - first, rows_at_a_time());
        op.logits = logits_.as<float>() + first * op.stride;
        if (tokens != nullptr) op.tokens = tokens + first * op.token_stride;
        if (sizes != nullptr) op.sizes = sizes + first;
        op.out = out + first * out_stride;
        backend.redistribute(op);
    }
}

std::span<const HeadSequence> RdkHead::own_sequences(const HeadCall& call) {
    inner_sequences_.assign(call.sequences.begin(), call.sequences.end());
    std::int32_t* size = call.downloads + base_->shape(call.level, call.rows).downloads;
    for (HeadSequence& inner : inner_sequences_) {
        if (inner.set == nullptr) continue;
        inner.set += vocab_;
        inner.set_size = size++;
    }
    return inner_sequences_;
}

void RdkHead::reach(kernels::Backend& backend, const HeadSequence& from, int capacity,
                    const HeadSequence& to) {
    kernels::ReachableTokensOp op;
    op.tokens = from.set;
    op.size = from.set_size;
    op.max_count = capacity;
    op.vocab = vocab_;
    affinity_.set_matrix(op);
    op.bits = bits_.as<std::uint32_t>();
    op.out = to.set;
    op.out_size = to.set_size;
    backend.list_reachable_tokens(op);
}

/// Returns the bytes of the matrix that a call reads. A device reads all of it for each row, the CPU the rows
/// of the base head's tokens.
std::uint64_t RdkHead::affinity_bytes(const HeadCall& call) const {
    constexpr std::uint64_t entry = sizeof(TokenId) + sizeof(float);
    const std::uint64_t rows = call.rows;
    if (!call.backend.is_host()) return rows * affinity_.matrix().sources.tokens.size() * entry;
    std::uint64_t tokens = columns_.counted ? 0 : rows * base_->shape(call.level, 1).support;
    for (std::uint64_t r = 0; columns_.counted && r < rows; ++r) tokens += d_sizes_.data()[r];
    return tokens * affinity_.matrix().width * entry;
}

void RdkHead::propose(HeadCall& call) {
    HeadCall inner = call;
    inner.sequences = own_sequences(call);
    inner.k = 1;
    inner.support_logits = logits_.as<float>();
    inner.support_stride = columns_.stride;
    if (columns_.per_row) inner.support_tokens = tokens_.as<std::int32_t>();
    if (columns_.counted) inner.support_sizes = d_sizes_.data();
    base_->propose(inner);
    for (std::size_t i = 0; call.sets_requested && i < inner_sequences_.size(); ++i)
        reach(call.backend, inner_sequences_[i], base_->shape(call.level, inner_sequences_[i].rows).set,
              call.sequences[i]);
    const DeviceSpans::Scope scope(call.spans, call.phases, Phase::topk, call.level, call.rows,
                                   affinity_bytes(call));
    kernels::RedistributeOp op;
    op.stride = columns_.stride;
    op.rows = call.rows;
    op.support = base_->shape(call.level, 1).support;
    op.temperature = call.temperature > 0 ? static_cast<float>(call.temperature) : 1.0f;
    op.tokens = columns_.per_row ? inner.support_tokens : inner.tokens;
    op.token_stride = columns_.per_row ? columns_.stride : 0;
    op.sizes = columns_.counted ? inner.support_sizes : nullptr;
    call.tokens = nullptr;
    if (call.support_logits != nullptr)
        return spread(call.backend, op, call.support_logits, call.support_stride);
    spread(call.backend, op, spread_.as<float>(), vocab_);
    kernels::TopKOp select = topk_of(call, 0, call.rows, spread_.as<float>(), vocab_, vocab_);
    select.scratch = scratch_.as<void>();
    call.backend.topk(select);
}

void RdkHead::collect(const HeadReadback& back) {
    const std::size_t downloads = base_->shape(back.level, back.rows).downloads;
    HeadReadback inner = back;
    inner.downloads = back.downloads.first(downloads);
    std::vector<std::span<const TokenId>> sets;
    std::vector<std::int32_t> sizes;
    for (std::size_t i = 0; i < back.sets.size(); ++i) {
        const int capacity = base_->shape(back.level, back.sequences[i].rows).set;
        sizes.push_back(std::clamp(back.downloads[downloads + i], 0, capacity));
        sets.push_back(back.sets[i].empty() ? back.sets[i] : back.sets[i].subspan(vocab_));
    }
    inner.sets = sets;
    inner.set_sizes = sizes;
    base_->collect(inner);
}

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
                                    .fit = {.kinds = FitRecipe::affinity}};
    return suffix;
}

}  // namespace draftscope
