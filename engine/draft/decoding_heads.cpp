#include "engine/draft/decoding_heads.h"

#include <algorithm>
#include <cstring>

#include "base/numel.h"
#include "engine/draft/candidate_sampler.h"
#include "engine/draft/grown_trees.h"
#include "engine/draft/path_heads.h"

namespace draftscope {
namespace {

struct PathHeadState final : DrafterState {
    std::vector<float> hidden;  ///< [d] of the last verified slot
    /// On a device, in its place: [2d], the root's embedding and the hidden.
    kernels::DeviceBuffer device_input;
};

PathHeadState& state_for(const DraftJob& job) {
    return static_cast<PathHeadState&>(*job.state);
}

/// A job's tree during expansion, with the path of every beam node.
struct Expansion {
    void reset(const DraftContext& context, DraftJob& job_in) {
        job = &job_in;
        begin_tree(beam, context, job_in);
        paths.assign(1, job_in.tokens.back());
        length = 1;
        first_row = 0;
        rows = 1;
    }

    DraftJob* job = nullptr;
    BeamExpansion beam;
    std::vector<TokenId> paths, next;  ///< [nodes, length], root first
    int length = 1;
    int first_row = 0;
    int rows = 1;

    int nodes() const { return static_cast<int>(paths.size()) / length; }
    void follow_beam() {
        next.clear();
        for (const BeamExpansion::BeamNode& node : beam.beam()) {
            const auto above = paths.begin() + std::ptrdiff_t{node.parent_row} * length;
            next.insert(next.end(), above, above + length);
            next.push_back(node.token);
        }
        paths.swap(next);
        ++length;
    }
};

class DecodingHeadDrafter final : public Drafter {
  public:
    DecodingHeadDrafter(std::unique_ptr<DecodingHeads> heads, const Target& target, std::string_view name)
        : heads_(std::move(heads)), target_(target), name_(name), rows_(*heads_, target), growth_(rows_) {
        if (!uses_head()) own_lm_head_ = make_level_lm_heads(heads_->lm_heads(), target);
    }

    bool uses_head() const override { return heads_->lm_heads().empty(); }
    bool needs_hidden() const override { return true; }
    std::unique_ptr<DrafterState> make_state(int) const override { return std::make_unique<PathHeadState>(); }
    Status extend_cache(DraftContext&, std::span<DraftJob> jobs) override {
        if (drafts_on_device()) {
            const std::lock_guard lock(rows_.device().submit_mutex());
            return gather_inputs(jobs);
        }
        for (DraftJob& job : jobs) {
            if (job.new_hidden.rows == 0) continue;
            const auto last = job.new_hidden.row(job.new_hidden.rows - 1);
            state_for(job).hidden.assign(last.begin(), last.end());
        }
        return {};
    }
    Status expand(DraftContext& context, std::span<DraftJob> jobs) override;
    bool drafts_on_device() const override { return !heads_->pass().on_host(); }
    Status check_on_device(const DraftContext& context, std::span<const DraftJob> jobs) override;
    Status enqueue_draft(DraftContext& context, std::span<DraftJob> jobs, TreeStep& step,
                         DeviceSpans& spans) override;
    void collect_draft() override { growth_.collect(); }
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
    std::vector<GrowingTree> plan_trees(std::span<DraftJob> jobs) const;
    Status compute_rows(DraftContext& context, std::span<Expansion*> active, int level);
    Rows<const float> gather_pass_inputs(Rows<const float> hidden, Rows<const TokenId> paths);
    void begin_level(DraftContext& context, std::span<Expansion*> active, Rows<const TokenId> paths,
                     int level);
    void list_rows(std::span<Expansion*> active);
    void propose(DraftContext& context, std::span<Expansion*> active, int level);

    std::unique_ptr<DecodingHeads> heads_;
    std::unique_ptr<LmHead> own_lm_head_;  ///< used if the checkpoint has LM heads
    const Target& target_;
    std::string name_;
    PathRows rows_;
    TreeGrowth growth_;     ///< trees on a device
    GrownTrees own_trees_;  ///< of expand() on a device
    std::vector<float> hidden_, embeddings_, out_;
    std::vector<float> inputs_;    ///< of a level's head
    std::vector<TokenId> tokens_;  ///< of the rows, for their embeddings
    std::vector<TokenId> paths_;   ///< [rows, level + 1]
    CandidateSampler candidates_;
    ReusableVector<Expansion> expansions_;  ///< one per drafting job
    std::vector<Expansion*> active_;
    std::vector<const DraftJob*> row_jobs_;
    std::vector<HeadState*> head_states_;
};

Status DecodingHeadDrafter::expand(DraftContext& run_context, std::span<DraftJob> jobs) {
    DraftContext context = head_context(run_context);
    if (context.head == nullptr) return failed("{}: drafting needs an LM head", name_);
    if (drafts_on_device()) {
        for (DraftJob& job : jobs)
            if (job.tree.nodes > 1) job.tree = clip_tree(job.tree, heads_->heads());
        return own_trees_.expand(context, jobs, growth_, rows_.device(),
                                 [&](std::span<DraftJob> drafting) { return plan_trees(drafting); });
    }
    expansions_.clear();
    active_.clear();
    for (DraftJob& job : jobs) {
        if (state_for(job).hidden.empty())
            return failed("{}: target features are missing; extend its cache before drafting", name_);
        job.rows_per_call.clear();
        expansions_.add().reset(context, job);
    }
    for (Expansion& expansion : expansions_) {
        if (expansion.job->tree.nodes > 1) active_.push_back(&expansion);
    }
    for (int level = 0; !active_.empty(); ++level) {
        DS_TRY(compute_rows(context, active_, level));
        propose(context, active_, level);
        std::erase_if(active_, [&](const Expansion* expansion) {
            return level + 1 >= heads_->heads() || level + 1 > expansion->job->tree.depth ||
                   expansion->beam.beam().empty();
        });
    }
    return rerank_all(context, expansions_);
}

Status DecodingHeadDrafter::check_on_device(const DraftContext& run_context, std::span<const DraftJob> jobs) {
    const DraftContext context = head_context(run_context);
    if (context.head == nullptr) return failed("{}: drafting needs an LM head", name_);
    return growth_.check(context, jobs);
}

std::vector<GrowingTree> DecodingHeadDrafter::plan_trees(std::span<DraftJob> jobs) const {
    std::vector<GrowingTree> trees;
    for (DraftJob& job : jobs) {
        job.rows_per_call.clear();
        trees.push_back({&job, state_for(job).device_input.as<float>()});
    }
    return trees;
}

Status DecodingHeadDrafter::enqueue_draft(DraftContext& run_context, std::span<DraftJob> jobs, TreeStep& step,
                                          DeviceSpans& spans) {
    DraftContext context = head_context(run_context);
    DS_TRY(gather_inputs(jobs));
    std::vector<GrowingTree> trees = plan_trees(jobs);
    if (!growth_.prepare(context, trees))
        return failed("{}: out of device memory for its trees; use a smaller batch or tree", name_);
    growth_.begin(context, trees, spans, step);
    return growth_.enqueue(context, trees, step);
}

/// Catch-up on a device: writes the roots' embeddings and the hiddens.
Status DecodingHeadDrafter::gather_inputs(std::span<DraftJob> jobs) {
    kernels::Device& device = rows_.device();
    const float* embeddings = target_.device_embeddings();
    if (embeddings == nullptr) return failed("{}: out of device memory for the embeddings", name_);
    const int d = heads_->hidden();
    std::vector<kernels::CopyRowsOp> copies;
    for (DraftJob& job : jobs) {
        PathHeadState& state = state_for(job);
        if (!state.device_input.reserve(device, 2 * numel(1, d) * sizeof(float)))
            return failed("{}: out of device memory for a sequence's state", name_);
        float* to = state.device_input.as<float>();
        copies.push_back({embeddings + std::ptrdiff_t{job.tokens.back()} * d, d, nullptr, 1, d, to, d});
        if (job.device_features != nullptr) {
            const float* last = job.device_features + std::ptrdiff_t{job.device_rows - 1} * d;
            copies.push_back({last, d, nullptr, 1, d, to + d, d});
        } else if (job.new_hidden.rows > 0) {
            const auto last = job.new_hidden.row(job.new_hidden.rows - 1);
            if (last.size() != static_cast<std::size_t>(d))
                return failed("{}: target features have width {}, expected {}", name_, last.size(), d);
            device.upload(to + d, last.data(), last.size_bytes());
        }
    }
    device.copy_rows(copies);
    return {};
}

Status DecodingHeadDrafter::compute_rows(DraftContext& context, std::span<Expansion*> active, int level) {
    const int d = heads_->hidden();
    PhaseScope scope(context.phases, Phase::backbone, level);
    paths_.clear();
    hidden_.clear();
    int rows = 0;
    for (Expansion* expansion : active) {
        if (level > 0) expansion->follow_beam();
        expansion->first_row = rows;
        expansion->rows = heads_->uses_path() ? expansion->nodes() : 1;
        rows += expansion->rows;
        const auto first = expansion->paths.begin();
        paths_.insert(paths_.end(), first, first + std::ptrdiff_t{expansion->rows} * expansion->length);
        const auto& hidden = state_for(*expansion->job).hidden;
        for (int r = 0; r < expansion->rows; ++r) hidden_.insert(hidden_.end(), hidden.begin(), hidden.end());
    }
    const Rows<const TokenId> paths(paths_.data(), rows, level + 1);
    begin_level(context, active, paths, level);
    out_.resize(numel(rows, d));
    scope.set_rows(rows);
    scope.add_bytes(heads_->weight_bytes(level));
    const Rows<const float> inputs = gather_pass_inputs(Rows<const float>(hidden_.data(), rows, d), paths);
    return heads_->pass().run(context.exec.backend(), level, inputs, Rows<float>(out_.data(), rows, d));
}

/// Returns the rows that the level's head reads: the hidden and, if used, the embeddings of the path.
Rows<const float> DecodingHeadDrafter::gather_pass_inputs(Rows<const float> hidden,
                                                          Rows<const TokenId> paths) {
    if (!heads_->uses_path()) return hidden;
    const int d = hidden.cols, width = (paths.cols + 1) * d;
    inputs_.resize(numel(hidden.rows, width));
    const Rows<float> inputs(inputs_.data(), hidden.rows, width);
    for (int r = 0; r < hidden.rows; ++r) {
        std::memcpy(inputs.row_data(r), hidden.row_data(r), hidden.row(r).size_bytes());
        target_.embed(paths.row(r), Rows<float>(inputs.row_data(r) + d, paths.cols, d));
    }
    return inputs;
}

/// Begins the head's level. A row continues from the last token of its path and the target's hidden, where
/// every level of these drafters starts. Medusa's rows serve all paths, so their token is the root.
void DecodingHeadDrafter::begin_level(DraftContext& context, std::span<Expansion*> active,
                                      Rows<const TokenId> paths, int level) {
    const int rows = paths.rows, d = heads_->hidden();
    tokens_.clear();
    for (int r = 0; r < rows; ++r)
        tokens_.push_back(heads_->uses_path() ? paths.row(r).back() : paths.row(r).front());
    embeddings_.resize(hidden_.size());
    target_.embed(tokens_, Rows<float>(embeddings_.data(), rows, d));
    list_rows(active);
    ProposeContext propose_context{context.exec, context.phases, level};
    context.head->begin_level(propose_context, Rows<const float>(embeddings_.data(), rows, d),
                              Rows<const float>(hidden_.data(), rows, d), head_states_);
}

void DecodingHeadDrafter::list_rows(std::span<Expansion*> active) {
    row_jobs_.clear();
    head_states_.clear();
    for (const Expansion* expansion : active) {
        const std::size_t mine = expansion->rows;
        row_jobs_.insert(row_jobs_.end(), mine, expansion->job);
        head_states_.insert(head_states_.end(), mine, expansion->job->head_state);
    }
}

void DecodingHeadDrafter::propose(DraftContext& context, std::span<Expansion*> active, int level) {
    const int d = heads_->hidden();
    int k = 0;
    for (const Expansion* expansion : active) k = std::max(k, expansion->job->tree.topk);
    list_rows(active);
    const Rows<const float> rows(out_.data(), static_cast<int>(row_jobs_.size()), d);
    candidates_.propose(context, rows, row_jobs_, level, k);
    {
        PhaseScope scope(context.phases, Phase::topk, level, rows.rows);
        for (Expansion* expansion : active) {
            const int parents = level == 0 ? 1 : expansion->nodes();
            candidates_.extend(expansion->beam, level, parents, expansion->first_row,
                               heads_->uses_path() ? 1 : 0, expansion->job->tree.topk);
            expansion->job->rows_per_call.push_back(expansion->rows);
        }
    }
    notify_observer(context, active, level);
}

}  // namespace

std::unique_ptr<Drafter> make_decoding_head_drafter(std::unique_ptr<DecodingHeads> heads,
                                                    const Target& target, std::string_view name) {
    return std::make_unique<DecodingHeadDrafter>(std::move(heads), target, name);
}

}  // namespace draftscope
