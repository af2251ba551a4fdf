#include "engine/draft/decoding_heads.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/numel.h"
#include "engine/draft/path_heads.h"
#include "engine/draft/registry.h"
#include "engine/heads/linear_lm_head.h"

namespace draftscope {
namespace {

struct PathHeadState final : DrafterState {
    /// [2d]: the root's embedding and the hidden of the last verified slot.
    kernels::DeviceBuffer input;
};

PathHeadState& path_state_for(const DraftJob& job) {
    return static_cast<PathHeadState&>(*job.state);
}

DrafterProperties properties_of(const DecodingHeadWeights& weights) {
    DrafterProperties out;
    out.uses_head = weights.lm_heads.empty();
    out.needs_hidden = true;
    out.weight_bytes = weights.bytes(0);
    out.max_levels = static_cast<int>(weights.heads.size());
    out.notes = weights.notes;
    return out;
}

/// The head `full` with the LM heads of a checkpoint, one per level.
class LevelLmHeads final : public LinearLmHead {
  public:
    LevelLmHeads(const DecodingHeadWeights& weights, int tokens) : weights_(weights), tokens_(tokens) {}

    Status prepare(kernels::Backend&, const HeadWeights&) override { return {}; }

    HeadProduct product(int level) const override {
        const std::size_t i = std::min(static_cast<std::size_t>(level), weights_.lm_heads.size() - 1);
        const std::vector<TokenId>& ids = weights_.vocab.ids;
        const int support =
            ids.empty() ? tokens_ : static_cast<int>(std::ranges::lower_bound(ids, tokens_) - ids.begin());
        return {nullptr, &weights_.lm_heads[i], support, ids, weights_.lm_biases[i]};
    }

  private:
    const DecodingHeadWeights& weights_;
    int tokens_;  ///< real ids; the remaining rows are padding
};

std::unique_ptr<LmHead> make_level_lm_heads(const DecodingHeadWeights& weights, const Target& target) {
    const Tokenizer* tokenizer = target.tokenizer();
    const int tokens = tokenizer == nullptr ? target.config().vocab : tokenizer->size();
    const bool trimmed = !weights.vocab.ids.empty();
    return std::make_unique<LevelLmHeads>(weights,
                                          trimmed ? tokens : std::min(tokens, weights.lm_heads.front().n()));
}

class DecodingHeadDrafter final : public Drafter {
  public:
    DecodingHeadDrafter(std::unique_ptr<PathHeads> heads, const Target& target, std::string_view name)
        : Drafter(properties_of(heads->weights())),
          heads_(std::move(heads)),
          target_(target),
          name_(name),
          rows_(*heads_, target),
          growth_(rows_, name) {
        if (!uses_head()) own_lm_head_ = make_level_lm_heads(heads_->weights(), target);
    }

    std::unique_ptr<DrafterState> make_state(int, bool) const override {
        return std::make_unique<PathHeadState>();
    }
    Status begin(DraftContext& context, std::span<DraftJob> jobs) override;
    Status enqueue(DraftContext& context, std::span<DraftJob> jobs, RoundStep& step) override;
    Status collect(const RoundStep& step, std::span<DraftJob> jobs) override {
        return growth_.collect(step, jobs);
    }

  private:
    /// Copies the context with the head that proposes.
    DraftContext head_context(const DraftContext& context) const {
        DraftContext level_context = context;
        if (own_lm_head_) level_context.head = own_lm_head_.get();
        return level_context;
    }
    Status gather_inputs(std::span<DraftJob> jobs, RoundStep& step) const;

    std::unique_ptr<PathHeads> heads_;
    std::unique_ptr<LmHead> own_lm_head_;  ///< used if the checkpoint has LM heads
    const Target& target_;
    std::string name_;
    PathRows rows_;
    TreeGrowth growth_;
    std::vector<GrowingTree> trees_;  ///< of a round
};

Status DecodingHeadDrafter::begin(DraftContext& run_context, std::span<DraftJob> jobs) {
    const DraftContext context = head_context(run_context);
    if (context.head == nullptr) return failed("{}: drafting needs an LM head", name_);
    for (DraftJob& job : jobs) {
        if (job.new_slots() == 0 && path_state_for(job).input.bytes() == 0)
            return failed("{}: target features are missing", name_);
        if (job.device_features == nullptr && job.new_hidden.rows > 0 &&
            job.new_hidden.cols != heads_->hidden())
            return failed("{}: target features have width {}, expected {}", name_, job.new_hidden.cols,
                          heads_->hidden());
        if (job.tree.nodes > 1) job.tree = clip_tree(job.tree, heads_->levels());
    }
    return TreeGrowth::check(context, jobs);
}

Status DecodingHeadDrafter::enqueue(DraftContext& run_context, std::span<DraftJob> jobs, RoundStep& step) {
    DraftContext context = head_context(run_context);
    DS_TRY(gather_inputs(jobs, step));
    trees_.clear();
    for (DraftJob& job : jobs) {
        job.rows_per_call.clear();
        if (job.tree.nodes > 1) trees_.push_back({&job, path_state_for(job).input.as<float>()});
    }
    if (trees_.empty()) return {};
    DS_TRY(growth_.prepare(context, step, trees_));
    growth_.begin(context);
    return growth_.enqueue(context);
}

/// The catch-up: writes the roots' embeddings and the hiddens.
Status DecodingHeadDrafter::gather_inputs(std::span<DraftJob> jobs, RoundStep& step) const {
    kernels::Backend& backend = *step.backend;
    const int d = heads_->hidden(), count = static_cast<int>(jobs.size());
    const auto tokens = step.memory.host.list<TokenId>(jobs.size());
    const auto copies = step.memory.host.list<kernels::CopyRowsOp>(2 * jobs.size());
    auto* d_tokens = step.memory.backend.alloc<TokenId>(jobs.size());
    auto* roots = step.memory.backend.alloc<float>(numel(count, d));
    if (!step.memory.enough() || !target_.embeddings().load(backend))
        return backend.out_of_memory(fmt::format("the embeddings of {}", name_));
    for (std::size_t i = 0; i < jobs.size(); ++i) tokens[i] = jobs[i].tokens.back();
    backend.upload(d_tokens, tokens.data(), tokens.size_bytes());
    target_.embeddings().enqueue(backend, d_tokens, count, roots, d);
    std::size_t copied = 0;
    for (std::size_t i = 0; i < jobs.size(); ++i) {
        const DraftJob& job = jobs[i];
        PathHeadState& state = path_state_for(job);
        if (!state.input.reserve(backend, 2 * numel(1, d) * sizeof(float)))
            return backend.out_of_memory(fmt::format("a sequence's state of {}", name_));
        float* to = state.input.as<float>();
        copies[copied++] = {.from = roots + numel(static_cast<int>(i), d), .count = 1, .cols = d, .to = to};
        if (job.device_features != nullptr)
            copies[copied++] = {.from = job.device_features + numel(job.device_rows - 1, d),
                                .count = 1,
                                .cols = d,
                                .to = to + d};
        else if (job.new_hidden.rows > 0)
            backend.upload(to + d, job.new_hidden.row_data(job.new_hidden.rows - 1), d * sizeof(float));
    }
    backend.copy_rows(copies.first(copied));
    return {};
}

/// Level l's candidates come from head l. The tree is expanded and reranked by cumulative score as in EAGLE-2
/// (our default; the papers use static trees). `path`: a folder or file in a published layout, or
/// "synthetic:NAME".
Result<std::unique_ptr<Drafter>> make_decoding_head_drafter(DecodingHeadKind kind, const std::string& path,
                                                            const Target& target, kernels::Backend& backend) {
    const bool hydra = kind == DecodingHeadKind::hydra;
    DS_ASSIGN(auto weights, load_decoding_heads(kind, path, target, backend));
    auto heads = std::make_unique<PathHeads>(std::move(weights), hydra, target.config().hidden);
    DS_TRY(heads->prepare(backend));
    return std::unique_ptr<Drafter>(
        std::make_unique<DecodingHeadDrafter>(std::move(heads), target, hydra ? "hydra" : "medusa"));
}

}  // namespace

/// Medusa (arXiv 2401.10774): head i predicts the token at distance i + 2 from the last verified token, using
/// only that token's hidden.
DrafterInfo describe_medusa() {
    return {.id = "medusa",
            .name = "Medusa",
            .paper = "Medusa, arXiv 2401.10774",
            .help =
                "residual heads, one per depth, over the target's last hidden state; a folder with "
                "model.safetensors or medusa_lm_head.pt",
            .has_synthetic = true,
            .make = [](const std::string& path, const Target& target, kernels::Backend& backend) {
                return make_decoding_head_drafter(DecodingHeadKind::medusa, path, target, backend);
            }};
}

/// Hydra (arXiv 2402.05109): head i also reads the embeddings of the i + 1 tokens drafted before its token,
/// root first.
DrafterInfo describe_hydra() {
    return {.id = "hydra",
            .name = "Hydra",
            .paper = "Hydra, arXiv 2402.05109",
            .help =
                "heads that also read the drafted tokens before theirs; a folder with model.safetensors or "
                "hydra_lm_head.pt",
            .has_synthetic = true,
            .make = [](const std::string& path, const Target& target, kernels::Backend& backend) {
                return make_decoding_head_drafter(DecodingHeadKind::hydra, path, target, backend);
            }};
}

}  // namespace draftscope
