#include "engine/draft/decoding_heads.h"

#include <mutex>
#include <utility>
#include <vector>

#include "base/numel.h"
#include "engine/draft/grown_trees.h"
#include "engine/draft/path_heads.h"
#include "kernels/device_array.h"

namespace draftscope {
namespace {

struct PathHeadState final : DrafterState {
    /// [2d]: the root's embedding and the hidden of the last verified slot.
    kernels::DeviceBuffer input;
};

PathHeadState& path_state_for(const DraftJob& job) {
    return static_cast<PathHeadState&>(*job.state);
}

class DecodingHeadDrafter final : public Drafter {
  public:
    DecodingHeadDrafter(std::unique_ptr<DecodingHeads> heads, const Target& target, std::string_view name)
        : heads_(std::move(heads)),
          target_(target),
          name_(name),
          rows_(*heads_, target),
          growth_(rows_, name) {
        notes_ = heads_->notes();
        if (!uses_head()) own_lm_head_ = make_level_lm_heads(heads_->lm_heads(), target);
    }

    bool uses_head() const override { return heads_->lm_heads().empty(); }
    bool needs_hidden() const override { return true; }
    std::unique_ptr<DrafterState> make_state(int) const override { return std::make_unique<PathHeadState>(); }
    Status extend_cache(DraftContext&, std::span<DraftJob> jobs) override {
        const std::lock_guard lock(rows_.device().submit_mutex());
        return gather_inputs(jobs);
    }
    Status expand(DraftContext& context, std::span<DraftJob> jobs) override;
    bool grows_trees() const override { return true; }
    Status check_draft(const DraftContext& context, std::span<const DraftJob> jobs) override;
    Status enqueue_draft(DraftContext& context, std::span<DraftJob> jobs, TreeStep& step,
                         DeviceSpans& spans) override;
    Status collect_draft(const TreeStep& step, std::span<DraftJob> jobs) override {
        return growth_.collect(step, jobs);
    }
    std::size_t weight_bytes() const override { return heads_->weight_bytes(0); }
    int max_levels() const override { return heads_->heads(); }

  private:
    /// Copies the context with the head that proposes.
    DraftContext head_context(const DraftContext& context) const {
        DraftContext own = context;
        if (own_lm_head_) own.head = own_lm_head_.get();
        return own;
    }
    Status gather_inputs(std::span<DraftJob> jobs);
    static void plan_trees(std::span<DraftJob> jobs, std::vector<GrowingTree>& out);

    std::unique_ptr<DecodingHeads> heads_;
    std::unique_ptr<LmHead> own_lm_head_;  ///< used if the checkpoint has LM heads
    const Target& target_;
    std::string name_;
    PathRows rows_;
    TreeGrowth growth_;
    GrownTrees own_trees_;            ///< of expand()
    std::vector<GrowingTree> trees_;  ///< of enqueue_draft()
    std::vector<kernels::CopyRowsOp> copies_;
    std::vector<TokenId> tokens_;  ///< of the roots
    kernels::DeviceArray<TokenId> d_tokens_;
    kernels::DeviceArray<float> roots_;  ///< their embeddings, [jobs, d]
};

Status DecodingHeadDrafter::expand(DraftContext& run_context, std::span<DraftJob> jobs) {
    DraftContext context = head_context(run_context);
    if (context.head == nullptr) return failed("{}: drafting needs an LM head", name_);
    for (DraftJob& job : jobs) {
        if (job.tree.nodes <= 1) continue;
        if (path_state_for(job).input.bytes() == 0)
            return failed("{}: target features are missing; extend its cache before drafting", name_);
        job.tree = clip_tree(job.tree, heads_->heads());
    }
    return own_trees_.expand(
        context, jobs, growth_, rows_.device(),
        [&](std::span<DraftJob> drafting, std::vector<GrowingTree>& trees) { plan_trees(drafting, trees); });
}

Status DecodingHeadDrafter::check_draft(const DraftContext& run_context, std::span<const DraftJob> jobs) {
    const DraftContext context = head_context(run_context);
    if (context.head == nullptr) return failed("{}: drafting needs an LM head", name_);
    return growth_.check(context, jobs);
}

void DecodingHeadDrafter::plan_trees(std::span<DraftJob> jobs, std::vector<GrowingTree>& out) {
    out.clear();
    for (DraftJob& job : jobs) {
        job.rows_per_call.clear();
        out.push_back({&job, path_state_for(job).input.as<float>()});
    }
}

Status DecodingHeadDrafter::enqueue_draft(DraftContext& run_context, std::span<DraftJob> jobs, TreeStep& step,
                                          DeviceSpans& spans) {
    DraftContext context = head_context(run_context);
    DS_TRY(gather_inputs(jobs));
    plan_trees(jobs, trees_);
    if (!growth_.prepare(context, trees_))
        return rows_.device().out_of_memory(fmt::format("the trees of {}", name_),
                                            "use a smaller batch or tree");
    growth_.begin(context, trees_, spans, step);
    return growth_.enqueue(context, trees_, step);
}

/// The catch-up: writes the roots' embeddings and the hiddens.
Status DecodingHeadDrafter::gather_inputs(std::span<DraftJob> jobs) {
    kernels::Backend& backend = rows_.device();
    kernels::EmbeddingTable& embeddings = target_.embeddings();
    const int d = heads_->hidden();
    tokens_.clear();
    for (const DraftJob& job : jobs) tokens_.push_back(job.tokens.back());
    if (!embeddings.load(backend) || !d_tokens_.upload(backend, tokens_) ||
        !roots_.resize_at_least(backend, numel(jobs.size(), d)))
        return backend.out_of_memory(fmt::format("the embeddings of {}", name_));
    embeddings.enqueue(backend, d_tokens_.data(), static_cast<int>(jobs.size()), roots_.data(), d);
    copies_.clear();
    const float* root = roots_.data();
    for (DraftJob& job : jobs) {
        const float* const embedding = std::exchange(root, root + d);
        const bool is_new = job.device_features != nullptr || job.new_hidden.rows > 0;
        PathHeadState& state = path_state_for(job);
        if (!is_new && state.input.bytes() == 0) continue;
        if (!state.input.reserve(backend, 2 * numel(1, d) * sizeof(float)))
            return backend.out_of_memory(fmt::format("a sequence's state of {}", name_));
        float* to = state.input.as<float>();
        copies_.push_back({.from = embedding, .count = 1, .cols = d, .to = to});
        if (job.device_features != nullptr) {
            const float* last = job.device_features + std::ptrdiff_t{job.device_rows - 1} * d;
            copies_.push_back({.from = last, .count = 1, .cols = d, .to = to + d});
        } else if (job.new_hidden.rows > 0) {
            const auto last = job.new_hidden.row(job.new_hidden.rows - 1);
            if (last.size() != static_cast<std::size_t>(d))
                return failed("{}: target features have width {}, expected {}", name_, last.size(), d);
            backend.upload(to + d, last.data(), last.size_bytes());
        }
    }
    backend.copy_rows(copies_);
    return {};
}

}  // namespace

std::unique_ptr<Drafter> make_decoding_head_drafter(std::unique_ptr<DecodingHeads> heads,
                                                    const Target& target, std::string_view name) {
    return std::make_unique<DecodingHeadDrafter>(std::move(heads), target, name);
}

}  // namespace draftscope
