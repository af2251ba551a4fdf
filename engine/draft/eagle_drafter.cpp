#include "engine/draft/eagle_drafter.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/numel.h"
#include "engine/draft/eagle_rows.h"
#include "engine/draft/eagle_state.h"

namespace draftscope {
namespace {

/// Rows per catch-up pass. Bounds the scratch of the first call, which covers the whole prompt.
constexpr int max_extend_rows = 128;

DrafterProperties properties_of(const EagleModel& model) {
    DrafterProperties out;
    out.aux_layers.assign(model.aux_layers().begin(), model.aux_layers().end());
    out.needs_hidden = out.aux_layers.empty();
    out.lm_head = model.own_lm_head();
    out.lm_head_ids = model.own_lm_head_ids();
    out.weight_bytes = model.weight_bytes();
    out.feature_weight_bytes = model.feature_weight_bytes();
    out.cache_bytes = kv_bytes(model.kv_type(), model.layers(), model.shape().kv_width());
    out.trained_positions = model.checkpoint().trained_positions;
    out.notes = model.checkpoint().notes;
    return out;
}

/// Returns the number of slots that passes have to process.
int unprocessed(std::span<const DraftJob> jobs) {
    int rows = 0;
    for (const DraftJob& job : jobs) rows += job.new_slots() - state_for(job).processed;
    return rows;
}

/// Sets the slots of the next pass, job after job, and returns their number.
int plan_pass(std::span<const DraftJob> jobs) {
    int rows = 0;
    for (const DraftJob& job : jobs) {
        EagleState& state = state_for(job);
        state.pass_end = std::min(job.new_slots(), state.processed + max_extend_rows - rows);
        rows += state.pass_rows();
    }
    return rows;
}

class EagleDrafter final : public Drafter {
  public:
    EagleDrafter(std::unique_ptr<EagleModel> model, std::string_view name)
        : Drafter(properties_of(*model)),
          model_(std::move(model)),
          name_(name),
          rows_(*model_),
          growth_(rows_, name) {}

    std::unique_ptr<DrafterState> make_state(int slots, bool keeps_slots) const override {
        return std::make_unique<EagleState>(slots, keeps_slots, model_->shape(), model_->kv_type(),
                                            model_->layer().device());
    }
    Status begin(DraftContext& context, std::span<DraftJob> jobs) override;
    Status enqueue(DraftContext& context, std::span<DraftJob> jobs, RoundStep& step) override;
    Status collect(const RoundStep& step, std::span<DraftJob> jobs) override {
        return growth_.collect(step, jobs);
    }

  private:
    int hidden() const { return model_->shape().hidden; }
    Status check(const DraftJob& job) const;
    Status reserve(RoundStep& step, std::span<DraftJob> jobs);
    void plan_trees(std::span<DraftJob> jobs);
    Status catch_up(DraftContext& context, std::span<const DraftJob> jobs, RoundStep& step, bool is_last);
    bool upload_slots(std::span<const DraftJob> jobs, int rows, RoundStep& step);
    void keep_rows(std::span<const DraftJob> jobs, RoundStep& step, const float* from, int width,
                   bool outputs);

    std::unique_ptr<EagleModel> model_;
    std::string name_;
    EagleRows rows_;
    TreeGrowth growth_;
    DecoderBatch batch_;
    std::vector<GrowingTree> trees_;  ///< of a round
    TokenId* d_tokens_ = nullptr;     ///< of the slots being processed
    float* d_features_ = nullptr;
};

Status EagleDrafter::check(const DraftJob& job) const {
    const int width = model_->feature_width();
    const Rows<const float>& features = needs_hidden() ? job.new_hidden : job.new_aux;
    if (job.device_features == nullptr && features.rows > 0 && features.cols != width) {
        return failed("{}: target features have width {}, expected {}", name_, features.cols, width);
    }
    const EagleState& state = state_for(job);
    const int slots = state.cache.length() + job.new_slots();
    if (static_cast<int>(job.tokens.size()) != slots + 1) {
        return failed("{}: {} verified slots need {} tokens, found {}: a round is missing", name_, slots,
                      slots + 1, job.tokens.size());
    }
    if (state.keeps_slots && slots > state.num_rows)
        return failed("{}: {} slots exceed the {} that the state keeps", name_, slots, state.num_rows);
    const int positions = model_->checkpoint().rope.positions,
              depth = job.tree.nodes > 1 ? job.tree.depth : 0;
    if (slots > positions)
        return failed("{}: {} slots exceed its maximum of {} positions", name_, slots, positions);
    if (slots + depth > positions)
        return failed("{}: a tree of depth {} at position {} exceeds its {} positions; clip the tree", name_,
                      depth, slots, positions);
    return {};
}

Status EagleDrafter::begin(DraftContext& context, std::span<DraftJob> jobs) {
    if (context.head == nullptr) return failed("{}: drafting needs an LM head", name_);
    for (const DraftJob& job : jobs) {
        EagleState& state = state_for(job);
        const int first = static_cast<int>(job.tokens.size()) - 1 - job.new_slots();
        if (state.keeps_slots && first < state.cache.length()) state.cache.truncate(std::max(first, 0));
        DS_TRY(check(job));
        state.begin(job.new_slots());
        state.ensure_free(job.new_slots() - state.processed + job.tree.drafting_nodes());
    }
    return TreeGrowth::check(context, jobs);
}

/// Reserves memory for the states and passes of the round, before anything is enqueued.
Status EagleDrafter::reserve(RoundStep& step, std::span<DraftJob> jobs) {
    kernels::Backend& backend = *step.backend;
    int nodes = 0;
    for (const DraftJob& job : jobs) {
        if (!state_for(job).reserve(backend))
            return backend.out_of_memory(fmt::format("a sequence's state of {}", name_));
        nodes += max_width(job.tree);
    }
    const int extended = std::min(unprocessed(jobs), max_extend_rows);
    if (!model_->embeddings().load(backend))
        return backend.out_of_memory(fmt::format("the embeddings of {}", name_));
    d_tokens_ = step.memory.backend.alloc<TokenId>(extended);
    d_features_ = step.memory.backend.alloc<float>(numel(extended, model_->feature_width()));
    if (!model_->layer().reserve(step.memory, std::max(extended, nodes)))
        return step.out_of_memory(fmt::format("{} rows of {}", std::max(extended, nodes), name_));
    return {};
}

/// Lists the trees that grow. Their roots continue from the last verified slots.
void EagleDrafter::plan_trees(std::span<DraftJob> jobs) {
    trees_.clear();
    for (DraftJob& job : jobs) {
        job.rows_per_call.clear();
        if (job.tree.nodes <= 1) continue;
        EagleState& state = state_for(job);
        const int committed = state.cache.length() + job.new_slots() - state.processed;
        trees_.push_back({&job, state.input(committed - 1), state.output(committed - 1), &state.cache,
                          committed, std::max(committed, state.known)});
    }
}

/// The trees' growth begins within the last pass of the catch-up, when every root's inputs are known.
Status EagleDrafter::enqueue(DraftContext& context, std::span<DraftJob> jobs, RoundStep& step) {
    DS_TRY(reserve(step, jobs));
    plan_trees(jobs);
    if (!trees_.empty()) DS_TRY(growth_.prepare(context, step, trees_));
    int rows = unprocessed(jobs);
    if (rows == 0 && !trees_.empty()) growth_.begin(context);
    while (rows > 0) {
        rows -= plan_pass(jobs);
        DS_TRY(catch_up(context, jobs, step, rows == 0));
    }
    return trees_.empty() ? Status() : growth_.enqueue(context);
}

/// Uploads tokens and features of the pass's slots.
bool EagleDrafter::upload_slots(std::span<const DraftJob> jobs, int rows, RoundStep& step) {
    kernels::Backend& backend = *step.backend;
    const int width = model_->feature_width();
    const auto tokens = step.memory.host.list<TokenId>(rows);
    const auto ops = step.memory.host.list<kernels::CopyRowsOp>(jobs.size());
    if (!step.memory.enough()) return false;
    std::size_t uploaded = 0, copied = 0;
    float* to = d_features_;
    for (const DraftJob& job : jobs) {
        const EagleState& state = state_for(job);
        const int first = state.processed, count = state.pass_rows();
        if (count == 0) continue;
        // Slot i pairs the hidden of token i with the embedding of token i + 1.
        const auto next = job.tokens.subspan(static_cast<std::size_t>(state.cache.length()) + 1, count);
        std::ranges::copy(next, tokens.begin() + static_cast<std::ptrdiff_t>(uploaded));
        uploaded += next.size();
        if (job.device_features != nullptr) {
            ops[copied++] = {.from = job.device_features + numel(first, width),
                             .from_stride = width,
                             .count = count,
                             .cols = width,
                             .to = to,
                             .to_stride = width};
        } else {
            const Rows<const float> source =
                (needs_hidden() ? job.new_hidden : job.new_aux).slice(first, count);
            const bool contiguous = source.stride == source.cols;
            if (contiguous) backend.upload(to, source.data, numel(count, width) * sizeof(float));
            for (int r = 0; !contiguous && r < source.rows; ++r)
                backend.upload(to + numel(r, width), source.row_data(r), width * sizeof(float));
        }
        to += numel(count, width);
    }
    backend.upload(d_tokens_, tokens.data(), tokens.size_bytes());
    backend.copy_rows(ops.first(copied));
    return true;
}

/// Enqueues the planned pass over verified slots without waiting. The trees grow after the last pass.
Status EagleDrafter::catch_up(DraftContext& context, std::span<const DraftJob> jobs, RoundStep& step,
                              bool is_last) {
    EagleLayer& layer = model_->layer();
    const int d = hidden();
    batch_.clear();
    for (const DraftJob& job : jobs) {
        EagleState& state = state_for(job);
        const int slot = state.cache.length();
        for (int i = 0; i < state.pass_rows(); ++i)
            batch_.add_row(state.cache, slot + i, slot + i, slot + i + 1);
    }
    const int rows = batch_.rows();
    const bool grows = is_last && !trees_.empty();
    // All uploads come before the round's first kernel.
    if (grows) DS_TRY(rows_.upload_layouts(trees_, batch_));
    if (!upload_slots(jobs, rows, step))
        return step.out_of_memory(fmt::format("{} verified slots of {}", rows, name_));
    {
        DeviceSpans::Scope scope(step.spans, context.phases, Phase::backbone, 0, rows,
                                 rows_.pass_bytes(batch_));
        rows_.enqueue_embeddings(d_tokens_, rows);
        model_->enqueue_features(d_features_, rows);
        keep_rows(jobs, step, layer.inputs(), 2 * d, false);
        if (grows) growth_.begin(context);
        DS_TRY(layer.enqueue(batch_, nullptr));
    }
    keep_rows(jobs, step, layer.outputs(), d, true);
    for (const DraftJob& job : jobs) state_for(job).commit_pass();
    return step.check_memory("verified slots of the drafter");
}

/// Copies the rows of the pass that the states keep: of each state in it, the last one at least.
void EagleDrafter::keep_rows(std::span<const DraftJob> jobs, RoundStep& step, const float* from, int width,
                             bool outputs) {
    const auto ops = step.memory.host.list<kernels::CopyRowsOp>(jobs.size());
    if (!step.memory.enough()) return;
    std::size_t copied = 0;
    int end = 0;
    for (const DraftJob& job : jobs) {
        EagleState& state = state_for(job);
        const int count = state.pass_rows();
        if (count == 0) continue;
        const int rows = state.keeps_slots ? count : 1;
        const int slot = state.cache.length() + count - rows;
        end += count;
        ops[copied++] = {.from = from + numel(end - rows, width),
                         .from_stride = width,
                         .count = rows,
                         .cols = width,
                         .to = outputs ? state.output(slot) : state.input(slot),
                         .to_stride = width};
    }
    step.backend->copy_rows(ops.first(copied));
}

}  // namespace

std::unique_ptr<Drafter> make_eagle_drafter(std::unique_ptr<EagleModel> model, std::string_view name) {
    return std::make_unique<EagleDrafter>(std::move(model), name);
}

}  // namespace draftscope
