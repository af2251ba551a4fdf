#include "engine/draft/eagle_drafter.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/numel.h"
#include "engine/draft/candidate_sampler.h"
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
        : model_(std::move(model)), name_(name), rows_(*model_), growth_(rows_) {}

    bool uses_head() const override { return true; }
    bool needs_hidden() const override { return model_->aux_layers().empty(); }
    std::span<const int> aux_layers() const override { return model_->aux_layers(); }
    std::unique_ptr<DrafterState> make_state(int slots) const override {
        return std::make_unique<EagleState>(slots, model_->shape(), model_->kv_type(), model_->device());
    }
    bool enable_rewind(DrafterState& state) const override {
        if (model_->device() != nullptr) return false;
        return static_cast<EagleState&>(state).keep_history = true;
    }
    void rewind(DrafterState& state) const override { static_cast<EagleState&>(state).cache.clear(); }
    Status extend_cache(DraftContext& context, std::span<DraftJob> jobs) override;
    Status expand(DraftContext& context, std::span<DraftJob> jobs) override;
    bool drafts_on_device() const override { return model_->device() != nullptr; }
    Status check_on_device(const DraftContext& context, std::span<const DraftJob> jobs) override;
    Status enqueue_draft(DraftContext& context, std::span<DraftJob> jobs, TreeStep& step,
                         DeviceSpans& spans) override;
    void collect_draft() override { growth_.collect(); }
    const kernels::Matrix* own_lm_head() const override { return model_->own_lm_head(); }
    std::span<const TokenId> own_lm_head_ids() const override { return model_->own_lm_head_ids(); }
    std::size_t weight_bytes() const override { return model_->weight_bytes(); }

  private:
    struct Slice {
        DraftJob* job;
        int first;  ///< first of the job's new slots
        int rows;
    };

    int hidden() const { return model_->shape().hidden; }
    int new_slots(const DraftJob& job) const {
        if (job.device_features != nullptr) return job.device_rows;
        return needs_hidden() ? job.new_hidden.rows : job.new_aux.rows;
    }
    Status check_catch_up(const DraftJob& job) const;
    Status check_expand(const DraftContext& context, const DraftJob& job) const;
    Status extend_cache_slices(DraftContext& context, std::span<const Slice> slices, int rows,
                               std::span<DraftJob> roots);
    Status catch_up_on_device(DraftContext& context, std::span<const Slice> slices, int rows,
                              DeviceSpans& spans, FunctionRef<void()> inputs_known);
    void copy_last_rows(std::span<const Slice> slices, const float* from, int width,
                        kernels::DeviceBuffer EagleState::*to) const;
    bool upload_slices(std::span<const Slice> slices, int rows);
    Status reserve_states(std::span<DraftJob> jobs) const;
    std::vector<GrowingTree> plan_trees(std::span<DraftJob> jobs, bool extended) const;
    Status enqueue_extend(DraftContext& context, std::span<DraftJob> jobs, DeviceSpans& spans,
                          FunctionRef<void()> last_inputs_known);
    Status extend_cache_on_device(DraftContext& context, std::span<DraftJob> jobs);
    Status expand_on_device(DraftContext& context, std::span<DraftJob> jobs);
    void gather_level(std::span<EagleExpansion*> active, int level, int rows);
    void begin_root(DraftContext& context, std::span<DraftJob> jobs);
    Status run_level(DraftContext& context, std::span<EagleExpansion*> active, int level, int rows);
    void list_rows(std::span<EagleExpansion*> active, int level);
    void propose(DraftContext& context, std::span<EagleExpansion*> active, int level, int rows);
    std::uint64_t pass_bytes() const {
        return model_->weight_bytes() +
               batch_.kv_bytes(model_->shape().kv_width(), kernels::bytes_per_value(model_->kv_type()));
    }

    std::unique_ptr<EagleModel> model_;
    std::string name_;
    EagleRows rows_;
    TreeGrowth growth_;  ///< trees on a device
    DecoderBatch batch_;
    RowBuffer inputs_;    ///< [rows, 2d]: embedding, hidden
    RowBuffer outputs_;   ///< [rows, d] of the latest pass
    RowBuffer previous_;  ///< outputs of the previous pass, while its rows are gathered
    CandidateSampler candidates_;
    std::vector<Slice> slices_;                  ///< of a catch-up
    std::vector<int> recalled_;                  ///< slots of each job that its state already had
    ReusableVector<EagleExpansion> expansions_;  ///< one per drafting job
    std::vector<EagleExpansion*> active_;
    std::vector<const DraftJob*> row_jobs_;
    std::vector<HeadState*> head_states_;
    RowBuffer roots_;                     ///< [sequences, 2d]: inputs of the roots' rows
    const LmHead* begun_head_ = nullptr;  ///< head whose level 0 has begun, and the sequences
    std::vector<const DrafterState*> begun_for_;
    std::vector<TokenId> tokens_;
    kernels::DeviceBuffer d_tokens_, d_features_;  ///< of the slots being processed
    GrownTrees own_trees_;                         ///< of expand() on a device
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

Status EagleDrafter::extend_cache(DraftContext& context, std::span<DraftJob> jobs) {
    for (const DraftJob& job : jobs) DS_TRY(check_catch_up(job));
    if (drafts_on_device()) return extend_cache_on_device(context, jobs);
    int rows = 0, left = 0;
    recalled_.clear();
    for (const DraftJob& job : jobs) {
        recalled_.push_back(state_for(job).reuse_known(new_slots(job)));
        left += new_slots(job) - recalled_.back();
    }
    slices_.clear();
    const auto flush = [&]() -> Status {
        left -= rows;
        // Only the last pass may overlap with the head: by then every root's inputs are known.
        if (rows > 0)
            DS_TRY(extend_cache_slices(context, slices_, rows, left == 0 ? jobs : std::span<DraftJob>{}));
        slices_.clear();
        rows = 0;
        return {};
    };
    for (std::size_t j = 0; j < jobs.size(); ++j) {
        DraftJob& job = jobs[j];
        state_for(job).cache.ensure_free(new_slots(job) - recalled_[j]);
        for (int first = recalled_[j]; first < new_slots(job);) {
            const int take = std::min(max_extend_rows - rows, new_slots(job) - first);
            slices_.push_back({&job, first, take});
            rows += take;
            first += take;
            if (rows == max_extend_rows) DS_TRY(flush());
        }
    }
    return flush();
}

/// Begins level 0 of the head for the sequences that will draft.
void EagleDrafter::begin_root(DraftContext& context, std::span<DraftJob> jobs) {
    const int d = hidden();
    begun_head_ = context.head;
    begun_for_.clear();
    head_states_.clear();
    for (const DraftJob& job : jobs) {
        if (job.tree.nodes <= 1) continue;
        begun_for_.push_back(job.state);
        head_states_.push_back(job.head_state);
    }
    if (begun_for_.empty()) return;
    const int rows = static_cast<int>(begun_for_.size());
    const Rows<float> roots = roots_.rows(rows, 2 * d);
    for (int r = 0; r < rows; ++r)
        copy_row(static_cast<const EagleState*>(begun_for_[r])->input, roots.row(r));
    ProposeContext level{context.exec, context.phases, 0};
    context.head->begin_level(level, Rows<const float>(roots.data, rows, d, roots.stride),
                              Rows<const float>(roots.data + d, rows, d, roots.stride), head_states_);
}

/// `roots`: the sequences whose level 0 begins with this pass.
Status EagleDrafter::extend_cache_slices(DraftContext& context, std::span<const Slice> slices, int rows,
                                         std::span<DraftJob> roots) {
    PhaseScope scope(context.phases, Phase::backbone, 0, rows);
    const int d = hidden();
    const Rows<float> inputs = inputs_.rows(rows, 2 * d);
    const Rows<float> outputs = outputs_.rows(rows, d);
    batch_.clear();
    int row = 0;
    for (const Slice& slice : slices) {
        KvCache& cache = state_for(*slice.job).cache;
        const int slot = cache.length();
        const Rows<float> mine = inputs.slice(row, slice.rows);
        // Slot i pairs the hidden of token i with the embedding of token i + 1.
        model_->embed(slice.job->tokens.subspan(static_cast<std::size_t>(slot) + 1, slice.rows),
                      Rows<float>(mine.data, slice.rows, d, mine.stride));
        const auto part = [&](const Rows<const float>& all) {
            return all.empty() ? all : all.slice(slice.first, slice.rows);
        };
        model_->fuse_features(context.exec, part(slice.job->new_hidden), part(slice.job->new_aux),
                              Rows<float>(mine.data + d, slice.rows, d, mine.stride));
        for (int i = 0; i < slice.rows; ++i) batch_.add_row(cache, slot + i, slot + i, slot + i + 1);
        EagleState& state = state_for(*slice.job);
        copy_row(mine.row(slice.rows - 1), state.input);
        state.remember(state.inputs, mine);
        row += slice.rows;
    }
    if (context.head != nullptr && !roots.empty()) begin_root(context, roots);
    DS_TRY(model_->layer().run(context.exec.backend(), batch_, inputs, outputs));
    row = 0;
    for (const Slice& slice : slices) {
        EagleState& state = state_for(*slice.job);
        state.commit(slice.rows);
        state.remember(state.outputs, outputs.slice(row, slice.rows));
        row += slice.rows;
        copy_row(outputs.row(row - 1), state.output);
    }
    scope.add_bytes(pass_bytes());
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

Status EagleDrafter::expand(DraftContext& context, std::span<DraftJob> jobs) {
    for (const DraftJob& job : jobs) DS_TRY(check_expand(context, job));
    if (drafts_on_device()) return expand_on_device(context, jobs);
    expansions_.clear();
    for (DraftJob& job : jobs) {
        expansions_.add().reset(context, job);
        state_for(job).make_room(job.tree.drafting_nodes());
        job.rows_per_call.clear();
    }
    active_.clear();
    for (EagleExpansion& expansion : expansions_) {
        if (expansion.job->tree.nodes > 1) active_.push_back(&expansion);
    }
    // The catch-up began level 0 for another head or for other sequences.
    if (begun_head_ != context.head ||
        !std::equal(begun_for_.begin(), begun_for_.end(), active_.begin(), active_.end(),
                    [](const DrafterState* a, const EagleExpansion* b) { return a == b->job->state; }))
        begin_root(context, jobs);
    begun_head_ = nullptr;
    for (int level = 0; !active_.empty(); ++level) {
        int rows = 0;
        for (EagleExpansion* expansion : active_) {
            expansion->parents_first = expansion->first_row;
            expansion->first_row = rows;
            rows += level == 0 ? 1 : expansion->rows();
        }
        DS_TRY(run_level(context, active_, level, rows));
        propose(context, active_, level, rows);
        std::erase_if(active_,
                      [&](const EagleExpansion* expansion) { return !expansion->expands(level + 1); });
    }
    return rerank_all(context, expansions_);
}

Status EagleDrafter::check_on_device(const DraftContext& context, std::span<const DraftJob> jobs) {
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
    const std::size_t bytes = hidden() * sizeof(float);
    for (DraftJob& job : jobs) {
        EagleState& state = state_for(job);
        if (!state.device_output.reserve(*model_->device(), bytes) ||
            !state.device_input.reserve(*model_->device(), 2 * bytes))
            return failed("{}: out of device memory for a sequence's state", name_);
    }
    if (model_->device_embeddings() == nullptr)
        return failed("{}: out of device memory for its embeddings", name_);
    return {};
}

/// `extended`: the jobs' new slots are in the caches already.
std::vector<GrowingTree> EagleDrafter::plan_trees(std::span<DraftJob> jobs, bool extended) const {
    std::vector<GrowingTree> trees;
    for (DraftJob& job : jobs) {
        job.rows_per_call.clear();
        EagleState& state = state_for(job);
        const int committed = state.cache.length() + (extended ? 0 : new_slots(job));
        trees.push_back({&job, state.device_input.as<float>(), state.device_output.as<float>(), &state.cache,
                         committed, committed});
    }
    return trees;
}

Status EagleDrafter::enqueue_draft(DraftContext& context, std::span<DraftJob> jobs, TreeStep& step,
                                   DeviceSpans& spans) {
    DS_TRY(reserve_states(jobs));
    std::vector<GrowingTree> trees = plan_trees(jobs, false);
    // Memory is reserved before anything is enqueued: a buffer that grows later loses its contents.
    if (!growth_.prepare(context, trees))
        return failed("{}: out of device memory for its trees; use a smaller batch or tree", name_);
    DS_TRY(enqueue_extend(context, jobs, spans, [&] { growth_.begin(context, trees, spans, step); }));
    return growth_.enqueue(context, trees, step);
}

/// Enqueues the catch-up. `last_inputs_known` runs within the last pass, when every root's inputs are known.
Status EagleDrafter::enqueue_extend(DraftContext& context, std::span<DraftJob> jobs, DeviceSpans& spans,
                                    FunctionRef<void()> last_inputs_known) {
    std::vector<Slice> slices;
    int rows = 0, left = 0;
    for (const DraftJob& job : jobs) left += new_slots(job);
    if (left == 0) last_inputs_known();
    const auto flush = [&]() -> Status {
        left -= rows;
        const auto begin = [&] {
            if (left == 0) last_inputs_known();
        };
        if (rows > 0) DS_TRY(catch_up_on_device(context, slices, rows, spans, begin));
        slices.clear();
        rows = 0;
        return {};
    };
    for (DraftJob& job : jobs)
        for (int first = 0; first < new_slots(job);) {
            const int take = std::min(max_extend_rows - rows, new_slots(job) - first);
            slices.push_back({&job, first, take});
            rows += take;
            first += take;
            if (rows == max_extend_rows) DS_TRY(flush());
        }
    return flush();
}

/// The catch-up alone, with a wait.
Status EagleDrafter::extend_cache_on_device(DraftContext& context, std::span<DraftJob> jobs) {
    kernels::Device& device = *model_->device();
    for (const DraftJob& job : jobs)
        state_for(job).cache.ensure_free(new_slots(job) + job.tree.drafting_nodes());
    const Status extended = device.submit([&]() -> Status {
        DS_TRY(reserve_states(jobs));
        own_spans_.begin(device);
        return enqueue_extend(context, jobs, own_spans_, [] {});
    });
    DS_TRY(extended);
    own_spans_.record(context.phases);
    return {};
}

/// Trees without a target's pass, with a wait.
Status EagleDrafter::expand_on_device(DraftContext& context, std::span<DraftJob> jobs) {
    for (const DraftJob& job : jobs) state_for(job).make_room(job.tree.drafting_nodes());
    return own_trees_.expand(context, jobs, growth_, *model_->device(),
                             [&](std::span<DraftJob> drafting) { return plan_trees(drafting, true); });
}

/// Uploads tokens and features of the slots; slices are contiguous.
bool EagleDrafter::upload_slices(std::span<const Slice> slices, int rows) {
    kernels::Device& device = *model_->device();
    const std::size_t width = model_->feature_width();
    if (!d_tokens_.reserve(device, static_cast<std::size_t>(max_extend_rows) * sizeof(TokenId)) ||
        !d_features_.reserve(device, rows * width * sizeof(float)))
        return false;
    tokens_.clear();
    std::vector<kernels::CopyRowsOp> copies;
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
            copies.push_back({job.device_features + row_offset(slice.first, width), cols, nullptr, slice.rows,
                              cols, to, cols});
        } else {
            const Rows<const float> mine =
                (needs_hidden() ? job.new_hidden : job.new_aux).slice(slice.first, slice.rows);
            const bool whole = mine.stride == mine.cols;
            if (whole) device.upload(to, mine.data, values * sizeof(float));
            for (int r = 0; !whole && r < mine.rows; ++r)
                device.upload(to + row_offset(r, width), mine.row_data(r), width * sizeof(float));
        }
        to += values;
    }
    device.copy_rows(copies);
    device.upload(d_tokens_.as<void>(), tokens_.data(), tokens_.size() * sizeof(TokenId));
    return true;
}

/// Enqueues extend_cache_slices() without waiting. A sequence occurs at most once. `inputs_known` runs after
/// the states' inputs are written and before the pass.
Status EagleDrafter::catch_up_on_device(DraftContext& context, std::span<const Slice> slices, int rows,
                                        DeviceSpans& spans, FunctionRef<void()> inputs_known) {
    kernels::Device& device = *model_->device();
    EagleLayer& layer = model_->layer();
    const int d = hidden();
    if (!layer.make_room(rows) || !upload_slices(slices, rows))
        return failed("{}: out of device memory for {} verified slots", name_, rows);
    batch_.clear();
    for (const Slice& slice : slices) {
        EagleState& state = state_for(*slice.job);
        const int slot = state.cache.length();
        for (int i = 0; i < slice.rows; ++i) batch_.add_row(state.cache, slot + i, slot + i, slot + i + 1);
    }
    {
        DeviceSpans::Scope scope(spans, context.phases, Phase::backbone, 0, rows, pass_bytes());
        device.copy_rows(
            {model_->device_embeddings(), d, d_tokens_.as<std::int32_t>(), rows, d, layer.inputs(), 2 * d});
        model_->enqueue_features(d_features_.as<float>(), rows);
        copy_last_rows(slices, layer.inputs(), 2 * d, &EagleState::device_input);
        inputs_known();
        DS_TRY(layer.enqueue_chain(batch_));
    }
    copy_last_rows(slices, layer.outputs(), d, &EagleState::device_output);
    for (const Slice& slice : slices) {
        EagleState& state = state_for(*slice.job);
        state.commit(slice.rows);
    }
    return {};
}

/// Copies the last row of each slice of `from` to the slice's state.
void EagleDrafter::copy_last_rows(std::span<const Slice> slices, const float* from, int width,
                                  kernels::DeviceBuffer EagleState::*to) const {
    int end = 0;
    std::vector<kernels::CopyRowsOp> copies;
    for (const Slice& slice : slices) {
        end += slice.rows;
        copies.push_back({from + std::ptrdiff_t{end - 1} * width, width, nullptr, 1, width,
                          (state_for(*slice.job).*to).as<float>(), width});
    }
    model_->device()->copy_rows(copies);
}

void EagleDrafter::gather_level(std::span<EagleExpansion*> active, int level, int rows) {
    const int d = hidden();
    const std::size_t width = level;
    const Rows<float> inputs = inputs_.rows(rows, 2 * d);
    batch_.clear();
    for (EagleExpansion* expansion : active) {
        const std::vector<BeamExpansion::BeamNode>& beam = expansion->beam.beam();
        KvCache& cache = state_for(*expansion->job).cache;
        tokens_.clear();
        for (const BeamExpansion::BeamNode& node : beam) tokens_.push_back(node.token);
        const Rows<float> mine = inputs.slice(expansion->first_row, static_cast<int>(beam.size()));
        model_->embed(tokens_, Rows<float>(mine.data, mine.rows, d, mine.stride));
        expansion->next_ancestor_slots.resize(beam.size() * width);
        for (std::size_t b = 0; b < beam.size(); ++b) {
            const int parent = beam[b].parent_row;
            copy_row(previous_.row(expansion->parents_first + parent, d),
                     mine.row(static_cast<int>(b)).subspan(d));
            int* tail = expansion->next_ancestor_slots.data() + b * width;
            if (level > 1) {
                const int* above = expansion->ancestor_slots.data() + parent * (width - 1);
                std::copy_n(above, width - 1, tail);
            }
            const int slot = expansion->free_slot + expansion->slots_used++;
            tail[width - 1] = slot;
            batch_.add_row(cache, slot, expansion->committed + level - 1, expansion->committed,
                           {tail, width});
        }
        expansion->ancestor_slots.swap(expansion->next_ancestor_slots);
    }
}

Status EagleDrafter::run_level(DraftContext& context, std::span<EagleExpansion*> active, int level,
                               int rows) {
    const int d = hidden();
    if (level == 0) {
        // The catch-up was the backbone pass of this level.
        const Rows<float> outputs = outputs_.rows(rows, d);
        for (const EagleExpansion* expansion : active)
            copy_row(state_for(*expansion->job).output, outputs.row(expansion->first_row));
        return {};
    }
    PhaseScope scope(context.phases, Phase::backbone, level, rows);
    outputs_.swap(previous_);
    gather_level(active, level, rows);
    const Rows<float> inputs = inputs_.rows(rows, 2 * d);
    list_rows(active, level);
    ProposeContext propose_context{context.exec, context.phases, level};
    context.head->begin_level(propose_context, Rows<const float>(inputs.data, rows, d, inputs.stride),
                              Rows<const float>(inputs.data + d, rows, d, inputs.stride), head_states_);
    DS_TRY(model_->layer().run(context.exec.backend(), batch_, inputs, outputs_.rows(rows, d)));
    scope.add_bytes(pass_bytes());
    return {};
}

void EagleDrafter::list_rows(std::span<EagleExpansion*> active, int level) {
    row_jobs_.clear();
    head_states_.clear();
    for (const EagleExpansion* expansion : active) {
        const std::size_t mine = level == 0 ? 1 : expansion->rows();
        row_jobs_.insert(row_jobs_.end(), mine, expansion->job);
        head_states_.insert(head_states_.end(), mine, expansion->job->head_state);
    }
}

void EagleDrafter::propose(DraftContext& context, std::span<EagleExpansion*> active, int level, int rows) {
    int k = 0;
    for (const EagleExpansion* expansion : active) k = std::max(k, expansion->job->tree.topk);
    list_rows(active, level);
    const Rows<const float> lm_head_input =
        model_->lm_head_input(context.exec, outputs_.rows(rows, hidden()));
    candidates_.propose(context, lm_head_input, row_jobs_, level, k);
    {
        PhaseScope scope(context.phases, Phase::topk, level, rows);
        for (EagleExpansion* expansion : active) {
            const int parents = level == 0 ? 1 : expansion->rows();
            candidates_.extend(expansion->beam, level, parents, expansion->first_row, 1,
                               expansion->job->tree.topk);
            expansion->job->rows_per_call.push_back(parents);
        }
    }
    notify_observer(context, active, level);
}

}  // namespace

std::unique_ptr<Drafter> make_eagle_drafter(std::unique_ptr<EagleModel> model, std::string_view name) {
    return std::make_unique<EagleDrafter>(std::move(model), name);
}

}  // namespace draftscope
