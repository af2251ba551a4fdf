#include "engine/draft/eagle_drafter.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/numel.h"
#include "engine/draft/eagle_checkpoint.h"
#include "engine/draft/eagle_layer.h"
#include "engine/draft/eagle_rows.h"
#include "engine/draft/eagle_state.h"
#include "engine/draft/grown_trees.h"

namespace draftscope {
namespace {

/// Rows per catch-up pass. Bounds the scratch of the first call, which covers the whole prompt.
constexpr int max_extend_rows = 128;

class EagleDrafter final : public Drafter {
  public:
    EagleDrafter(std::unique_ptr<EagleModel> model, std::string_view name)
        : model_(std::move(model)), name_(name), rows_(*model_), growth_(rows_, name) {
        notes_ = model_->checkpoint().notes;
    }

    bool uses_head() const override { return true; }
    int trained_positions() const override { return model_->checkpoint().trained_positions; }
    bool needs_hidden() const override { return model_->aux_layers().empty(); }
    std::span<const int> aux_layers() const override { return model_->aux_layers(); }
    std::unique_ptr<DrafterState> make_state(int slots) const override {
        return std::make_unique<EagleState>(slots, model_->shape(), model_->kv_type(), backend());
    }
    bool enable_rewind(DrafterState& state) const override {
        if (!backend().is_host()) return false;
        return static_cast<EagleState&>(state).keep_history = true;
    }
    void rewind(DrafterState& state) const override { static_cast<EagleState&>(state).cache.clear(); }
    Status extend_cache(DraftContext& context, std::span<DraftJob> jobs) override;
    Status expand(DraftContext& context, std::span<DraftJob> jobs) override;
    bool grows_trees() const override { return true; }
    Status check_draft(const DraftContext& context, std::span<const DraftJob> jobs) override;
    Status enqueue_draft(DraftContext& context, std::span<DraftJob> jobs, TreeStep& step,
                         DeviceSpans& spans) override;
    Status collect_draft(const TreeStep& step, std::span<DraftJob> jobs) override {
        return growth_.collect(step, jobs);
    }
    const kernels::Matrix* own_lm_head() const override { return model_->own_lm_head(); }
    std::span<const TokenId> own_lm_head_ids() const override { return model_->own_lm_head_ids(); }
    std::size_t weight_bytes() const override { return model_->weight_bytes(); }
    std::size_t feature_weight_bytes() const override { return model_->feature_weight_bytes(); }

  private:
    struct Slice {
        DraftJob* job;
        int first;  ///< first of the job's new slots
        int rows;
    };

    kernels::Backend& backend() const { return model_->layer().device(); }
    int hidden() const { return model_->shape().hidden; }
    int new_slots(const DraftJob& job) const {
        if (job.device_features != nullptr) return job.device_rows;
        return needs_hidden() ? job.new_hidden.rows : job.new_aux.rows;
    }
    Status check_catch_up(const DraftJob& job) const;
    Status check_expand(const DraftContext& context, const DraftJob& job) const;
    Status catch_up(DraftContext& context, std::span<const Slice> slices, int rows, DeviceSpans& spans,
                    std::span<const GrowingTree> trees, FunctionRef<void()> inputs_known);
    void copy_last_rows(std::span<const Slice> slices, const float* from, int width,
                        kernels::DeviceBuffer EagleState::*to);
    void remember_rows(std::span<const Slice> slices) const;
    bool upload_slices(std::span<const Slice> slices, int rows);
    Status reserve_states(std::span<DraftJob> jobs) const;
    void recall(std::span<DraftJob> jobs);
    void plan_trees(std::span<DraftJob> jobs, bool extended, std::vector<GrowingTree>& out) const;
    Status enqueue_extend(DraftContext& context, std::span<DraftJob> jobs, DeviceSpans& spans,
                          std::span<const GrowingTree> trees, FunctionRef<void()> last_inputs_known);

    std::unique_ptr<EagleModel> model_;
    std::string name_;
    EagleRows rows_;
    TreeGrowth growth_;
    DecoderBatch batch_;
    std::vector<Slice> slices_;       ///< of a catch-up
    std::vector<int> recalled_;       ///< new slots of each job that its state already has
    std::vector<GrowingTree> trees_;  ///< of a round, or of begin_head()
    std::vector<TokenId> tokens_;     ///< of a pass of the catch-up
    std::vector<kernels::CopyRowsOp> copies_;
    kernels::DeviceBuffer d_tokens_, d_features_;  ///< of the slots being processed
    GrownTrees own_trees_;                         ///< of expand()
    DeviceSpans own_spans_;
};

Status EagleDrafter::check_catch_up(const DraftJob& job) const {
    const int width = model_->feature_width();
    const Rows<const float>& features = needs_hidden() ? job.new_hidden : job.new_aux;
    if (job.device_features == nullptr && features.rows > 0 && features.cols != width) {
        return failed("{}: target features have width {}, expected {}", name_, features.cols, width);
    }
    const int slots = state_for(job).cache.length() + new_slots(job);
    if (static_cast<int>(job.tokens.size()) != slots + 1) {
        return failed("{}: {} verified slots need {} tokens, found {}: a round is missing", name_, slots,
                      slots + 1, job.tokens.size());
    }
    if (slots > model_->rope().positions) {
        return failed("{}: {} slots exceed its maximum of {} positions", name_, slots,
                      model_->rope().positions);
    }
    return {};
}

/// Reuses the results of slots that a rewound state has processed before.
void EagleDrafter::recall(std::span<DraftJob> jobs) {
    recalled_.clear();
    for (const DraftJob& job : jobs) recalled_.push_back(state_for(job).reuse_known(new_slots(job)));
}

/// The catch-up alone, with a wait.
Status EagleDrafter::extend_cache(DraftContext& context, std::span<DraftJob> jobs) {
    for (const DraftJob& job : jobs) DS_TRY(check_catch_up(job));
    recall(jobs);
    for (std::size_t j = 0; j < jobs.size(); ++j)
        state_for(jobs[j]).cache.ensure_free(new_slots(jobs[j]) - recalled_[j] +
                                             jobs[j].tree.drafting_nodes());
    const Status extended = backend().submit([&]() -> Status {
        DS_TRY(reserve_states(jobs));
        own_spans_.begin(backend());
        return enqueue_extend(context, jobs, own_spans_, {}, [] {});
    });
    DS_TRY(extended);
    own_spans_.record(context.phases);
    return {};
}

Status EagleDrafter::check_expand(const DraftContext& context, const DraftJob& job) const {
    if (context.head == nullptr) return failed("{}: drafting needs an LM head", name_);
    const int committed = state_for(job).cache.length();
    if (committed == 0 || static_cast<int>(job.tokens.size()) != committed + 1) {
        return failed("{}: {} tokens but {} slots processed; extend its cache before drafting", name_,
                      job.tokens.size(), committed);
    }
    if (job.tree.nodes > 1 && committed + job.tree.depth > model_->rope().positions) {
        return failed("{}: a tree of depth {} at position {} exceeds its {} positions; clip the tree", name_,
                      job.tree.depth, committed, model_->rope().positions);
    }
    return {};
}

/// Trees without a target's pass, with a wait.
Status EagleDrafter::expand(DraftContext& context, std::span<DraftJob> jobs) {
    for (const DraftJob& job : jobs) DS_TRY(check_expand(context, job));
    for (const DraftJob& job : jobs) state_for(job).make_room(job.tree.drafting_nodes());
    return own_trees_.expand(context, jobs, growth_, backend(),
                             [&](std::span<DraftJob> drafting, std::vector<GrowingTree>& trees) {
                                 plan_trees(drafting, true, trees);
                             });
}

Status EagleDrafter::check_draft(const DraftContext& context, std::span<const DraftJob> jobs) {
    if (context.head == nullptr) return failed("{}: drafting needs an LM head", name_);
    for (const DraftJob& job : jobs) {
        DS_TRY(check_catch_up(job));
        const int committed = state_for(job).cache.length() + new_slots(job);
        if (committed + job.tree.depth > model_->rope().positions)
            return failed("{}: a tree of depth {} at position {} exceeds its {} positions; clip the tree",
                          name_, job.tree.depth, committed, model_->rope().positions);
    }
    DS_TRY(growth_.check(context, jobs));
    for (const DraftJob& job : jobs)
        state_for(job).cache.ensure_free(new_slots(job) + job.tree.drafting_nodes());
    return {};
}

Status EagleDrafter::reserve_states(std::span<DraftJob> jobs) const {
    for (DraftJob& job : jobs)
        if (!state_for(job).reserve(backend()))
            return backend().out_of_memory(fmt::format("a sequence's state of {}", name_));
    if (!model_->embeddings().load(backend()))
        return backend().out_of_memory(fmt::format("the embeddings of {}", name_));
    return {};
}

/// `extended`: the jobs' new slots are in the caches already.
void EagleDrafter::plan_trees(std::span<DraftJob> jobs, bool extended, std::vector<GrowingTree>& out) const {
    out.clear();
    for (DraftJob& job : jobs) {
        job.rows_per_call.clear();
        EagleState& state = state_for(job);
        const int committed = state.cache.length() + (extended ? 0 : new_slots(job));
        out.push_back({&job, state.input.as<float>(), state.output.as<float>(), &state.cache, committed,
                       std::max(committed, state.known)});
    }
}

Status EagleDrafter::enqueue_draft(DraftContext& context, std::span<DraftJob> jobs, TreeStep& step,
                                   DeviceSpans& spans) {
    DS_TRY(reserve_states(jobs));
    recall(jobs);
    plan_trees(jobs, false, trees_);
    // Memory is reserved before anything is enqueued: a buffer that grows later loses its contents.
    if (!growth_.prepare(context, trees_))
        return backend().out_of_memory(fmt::format("the trees of {}", name_), "use a smaller batch or tree");
    DS_TRY(
        enqueue_extend(context, jobs, spans, trees_, [&] { growth_.begin(context, trees_, spans, step); }));
    return growth_.enqueue(context, trees_, step);
}

/// Enqueues the catch-up. `last_inputs_known` runs within the last pass, when every root's inputs are known.
/// `trees` grow after it.
Status EagleDrafter::enqueue_extend(DraftContext& context, std::span<DraftJob> jobs, DeviceSpans& spans,
                                    std::span<const GrowingTree> trees,
                                    FunctionRef<void()> last_inputs_known) {
    int rows = 0, left = 0;
    for (std::size_t j = 0; j < jobs.size(); ++j) left += new_slots(jobs[j]) - recalled_[j];
    if (left == 0) last_inputs_known();
    slices_.clear();
    const auto flush = [&]() -> Status {
        left -= rows;
        const auto begin = [&] {
            if (left == 0) last_inputs_known();
        };
        const auto next = left == 0 ? trees : std::span<const GrowingTree>();
        if (rows > 0) DS_TRY(catch_up(context, slices_, rows, spans, next, begin));
        slices_.clear();
        rows = 0;
        return {};
    };
    for (std::size_t j = 0; j < jobs.size(); ++j)
        for (int first = recalled_[j]; first < new_slots(jobs[j]);) {
            const int take = std::min(max_extend_rows - rows, new_slots(jobs[j]) - first);
            slices_.push_back({&jobs[j], first, take});
            rows += take;
            first += take;
            if (rows == max_extend_rows) DS_TRY(flush());
        }
    return flush();
}

/// Uploads tokens and features of the slots; slices are contiguous.
bool EagleDrafter::upload_slices(std::span<const Slice> slices, int rows) {
    const std::size_t width = model_->feature_width();
    if (!d_tokens_.reserve(backend(), static_cast<std::size_t>(max_extend_rows) * sizeof(TokenId)) ||
        !d_features_.reserve(backend(), rows * width * sizeof(float)))
        return false;
    tokens_.clear();
    copies_.clear();
    float* to = d_features_.as<float>();
    for (const Slice& slice : slices) {
        const DraftJob& job = *slice.job;
        // Slot i pairs the hidden of token i with the embedding of token i + 1.
        const int slot = state_for(job).cache.length();
        const auto next = job.tokens.subspan(static_cast<std::size_t>(slot) + 1, slice.rows);
        tokens_.insert(tokens_.end(), next.begin(), next.end());
        const std::size_t values = numel(slice.rows, width);
        if (job.device_features != nullptr) {
            const auto cols = static_cast<int>(width);
            copies_.push_back({job.device_features + row_offset(slice.first, width), cols, nullptr,
                               slice.rows, cols, to, cols});
        } else {
            const Rows<const float> mine =
                (needs_hidden() ? job.new_hidden : job.new_aux).slice(slice.first, slice.rows);
            const bool whole = mine.stride == mine.cols;
            if (whole) backend().upload(to, mine.data, values * sizeof(float));
            for (int r = 0; !whole && r < mine.rows; ++r)
                backend().upload(to + row_offset(r, width), mine.row_data(r), width * sizeof(float));
        }
        to += values;
    }
    backend().upload(d_tokens_.as<void>(), tokens_.data(), tokens_.size() * sizeof(TokenId));
    backend().copy_rows(copies_);
    return true;
}

/// Enqueues a pass over verified slots without waiting. A sequence occurs at most once. `inputs_known` runs
/// after the states' inputs are written and before the pass. `trees` grow after it; empty = a pass follows
/// first, or none.
Status EagleDrafter::catch_up(DraftContext& context, std::span<const Slice> slices, int rows,
                              DeviceSpans& spans, std::span<const GrowingTree> trees,
                              FunctionRef<void()> inputs_known) {
    EagleLayer& layer = model_->layer();
    const int d = hidden();
    batch_.clear();
    for (const Slice& slice : slices) {
        EagleState& state = state_for(*slice.job);
        const int slot = state.cache.length();
        for (int i = 0; i < slice.rows; ++i) batch_.add_row(state.cache, slot + i, slot + i, slot + i + 1);
    }
    // All uploads come before the round's first kernel. A CPU's levels have no more rows than candidates.
    if (!backend().is_host() && !trees.empty()) DS_TRY(rows_.upload_layouts(trees, batch_));
    if (!layer.make_room(rows) || !upload_slices(slices, rows))
        return backend().out_of_memory(fmt::format("{} verified slots of {}", rows, name_));
    {
        DeviceSpans::Scope scope(spans, context.phases, Phase::backbone, 0, rows, rows_.pass_bytes(batch_));
        rows_.enqueue_embeddings(d_tokens_.as<std::int32_t>(), rows);
        model_->enqueue_features(d_features_.as<float>(), rows);
        copy_last_rows(slices, layer.inputs(), 2 * d, &EagleState::input);
        inputs_known();
        DS_TRY(layer.enqueue_chain(batch_));
    }
    copy_last_rows(slices, layer.outputs(), d, &EagleState::output);
    for (const Slice& slice : slices) state_for(*slice.job).commit(slice.rows);
    remember_rows(slices);
    return {};
}

/// Keeps the inputs and outputs of the latest pass for states that can be rewound.
void EagleDrafter::remember_rows(std::span<const Slice> slices) const {
    EagleLayer& layer = model_->layer();
    const int d = hidden();
    int first = 0;
    for (const Slice& slice : slices) {
        EagleState& state = state_for(*slice.job);
        state.remember(state.inputs, {layer.inputs() + row_offset(first, 2 * d), slice.rows, 2 * d});
        state.remember(state.outputs, {layer.outputs() + row_offset(first, d), slice.rows, d});
        first += slice.rows;
    }
}

/// Copies the last row of each slice of `from` to the slice's state.
void EagleDrafter::copy_last_rows(std::span<const Slice> slices, const float* from, int width,
                                  kernels::DeviceBuffer EagleState::*to) {
    int end = 0;
    copies_.clear();
    for (const Slice& slice : slices) {
        end += slice.rows;
        copies_.push_back({from + std::ptrdiff_t{end - 1} * width, width, nullptr, 1, width,
                           (state_for(*slice.job).*to).as<float>(), width});
    }
    backend().copy_rows(copies_);
}

}  // namespace

std::unique_ptr<Drafter> make_eagle_drafter(std::unique_ptr<EagleModel> model, std::string_view name) {
    return std::make_unique<EagleDrafter>(std::move(model), name);
}

}  // namespace draftscope
