#include "engine/draft/draft_model.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/numel.h"
#include "engine/draft/draft_model_state.h"
#include "engine/draft/drafter_files.h"
#include "engine/draft/eagle_rows.h"
#include "engine/draft/registry.h"
#include "engine/draft/vocabulary_pair.h"
#include "engine/formats/model_file.h"
#include "engine/weights/memory_check.h"

namespace draftscope {
namespace {

constexpr std::string_view draft_model_id = "draft-model";
constexpr std::string_view option_names[] = {"precision"};
constexpr std::string_view precisions[] = {"auto", "f32", "bf16", "int8", "int4"};
constexpr double gib = 1024.0 * 1024.0 * 1024.0;

/// Returns the state of a job.
DraftModelState& state_for(const DraftJob& job) {
    return static_cast<DraftModelState&>(*job.state);
}

/// All layers of a language model.
class ModelBackbone final : public Backbone {
  public:
    explicit ModelBackbone(std::unique_ptr<Target> model) : model_(std::move(model)) {}

    /// `vocab` is the target's. Padding that the model lacks has an embedding of zeros.
    Status prepare(int vocab) {
        const ModelConfig& config = model_->config();
        rope_ = kernels::make_rope_table(config.head_dim, config.rotation.theta, config.context,
                                         config.rotation.divisors, config.rotation.scale);
        embeddings_ = {std::max(vocab, config.vocab), config.hidden, [this](TokenId token, float* out) {
                           const ModelConfig& known = model_->config();
                           if (token < known.vocab)
                               model_->embeddings().read(token, out);
                           else
                               std::fill_n(out, known.hidden, 0.0f);
                       }};
        DS_TRY(pass_.prepare(model_->backend(), shape(), rope_, model_->layers(), config.hidden));
        pass_.set_decoder(pass_.keep(model_->output_norm()), model_->lm_head());
        return {};
    }
    const LayerShape& shape() const override { return model_->shape(); }
    int layers() const override { return model_->config().layers; }
    kernels::EmbeddingTable& embeddings() override { return embeddings_; }
    kernels::KvType kv_type() const override { return kv_type_for(model_->precision()); }
    std::size_t weight_bytes() const override { return model_->weight_bytes() - model_->lm_head().bytes(); }
    const Target& model() const { return *model_; }

  private:
    std::unique_ptr<Target> model_;
    kernels::RopeTable rope_;
    kernels::EmbeddingTable embeddings_;
};

/// The rows of trees. Remembers which nodes have keys and values.
class DraftModelRows final : public EagleRows {
  public:
    using EagleRows::EagleRows;

    /// Starts a round and reserves the memory of its nodes. Returns false if out of memory.
    bool begin(RoundStep& step, std::span<const DraftJob> jobs) {
        levels_.clear();
        nodes_.clear();
        std::size_t rows = 0, levels = 0;
        for (const DraftJob& job : jobs) {
            rows += job.tree.drafting_nodes();
            levels = std::max(levels, static_cast<std::size_t>(job.tree.levels()));
        }
        levels_.reserve(levels);
        nodes_.reserve(levels * jobs.size());
        previous_.reserve(rows);
        current_.reserve(rows);
        values_ = step.memory.backend.alloc<std::int32_t>(2 * rows);
        return step.memory.enough();
    }
    Status enqueue(const Level& level, FunctionRef<void(const float*)> inputs_known) override {
        if (level.level > 0 && level.rows > 0) list_nodes(level);
        return EagleRows::enqueue(level, inputs_known);
    }
    /// Hands the nodes of the round to the states, after the wait.
    void collect(const RoundStep& step) {
        for (const TreeNodes& listed : nodes_)
            if (listed.level == 1) listed.state->nodes.clear();
        std::size_t next = 0;
        previous_.clear();
        for (std::size_t level = 0; level < levels_.size(); ++level) {
            const auto [index, rows] = levels_[level];
            const auto tokens = step.results.values(index, rows);
            const auto parents = step.results.values(index + rows, rows);
            current_.assign(rows, DraftModelState::no_node);
            for (; next < nodes_.size() && nodes_[next].level == static_cast<int>(level) + 1; ++next) {
                const TreeNodes& listed = nodes_[next];
                for (int i = 0; i < listed.nodes; ++i) {
                    const int row = listed.first_node + i, above = parents[row];
                    const bool known = above >= 0 && above < std::ssize(previous_);
                    const int parent = level == 0 ? DraftModelState::root
                                       : known    ? previous_[above]
                                                  : DraftModelState::no_node;
                    current_[row] = static_cast<int>(listed.state->nodes.size());
                    listed.state->nodes.push_back({tokens[row], parent, listed.first_slot + i});
                }
            }
            std::swap(previous_, current_);
        }
    }

  private:
    struct TreeNodes {
        DraftModelState* state;
        int level, first_node, nodes, first_slot;
    };

    /// Requests the tokens and parents of a level, whose memory the next level takes.
    void list_nodes(const Level& level) {
        RoundStep& step = level.step;
        const std::size_t rows = level.rows;
        step.backend->copy(values_, level.tokens, rows * sizeof(std::int32_t));
        step.backend->copy(values_ + rows, level.parents, rows * sizeof(std::int32_t));
        levels_.push_back({step.results.request(values_, 2 * rows), rows});
        values_ += 2 * rows;
        for (const GrowingTree* tree : level.trees) {
            DraftModelState& state = state_for(*tree->job);
            if (!state.keeps_slots)
                nodes_.push_back(
                    {&state, level.level, tree->first_node, tree->nodes, tree->free_slot + tree->slots});
        }
    }

    struct Requested {
        std::size_t index, rows;  ///< in the results: tokens, then parents
    };
    std::vector<Requested> levels_;  ///< from level 1
    std::vector<TreeNodes> nodes_;
    std::int32_t* values_ = nullptr;       ///< memory for tokens and parents of the next level
    std::vector<int> previous_, current_;  ///< index of each row's node, in collect()
};

DrafterProperties properties_of(const ModelBackbone& backbone, Notes notes) {
    DrafterProperties out;
    out.lm_head = &backbone.model().lm_head();
    out.weight_bytes = backbone.weight_bytes();
    out.cache_bytes = kv_bytes(backbone.kv_type(), backbone.layers(), backbone.shape().kv_width());
    out.positions = backbone.model().config().context;
    out.notes = std::move(notes);
    return out;
}

class DraftModel final : public Drafter {
  public:
    DraftModel(std::unique_ptr<ModelBackbone> backbone, Notes notes)
        : Drafter(properties_of(*backbone, std::move(notes))),
          backbone_(std::move(backbone)),
          rows_(*backbone_),
          growth_(rows_, draft_model_id) {}

    std::unique_ptr<DrafterState> make_state(int slots, bool keeps_slots) const override {
        return std::make_unique<DraftModelState>(backbone_->model().make_cache(slots), keeps_slots,
                                                 backbone_->shape().hidden);
    }
    Status begin(DraftContext& context, std::span<DraftJob> jobs) override;
    Status enqueue(DraftContext& context, std::span<DraftJob> jobs, RoundStep& step) override;
    Status collect(const RoundStep& step, std::span<DraftJob> jobs) override {
        rows_.collect(step);
        return growth_.collect(step, jobs);
    }

  private:
    Status check(const DraftJob& job) const;
    Status reserve(RoundStep& step, std::span<DraftJob> jobs);
    Status keep_accepted(std::span<DraftJob> jobs, RoundStep& step);
    void plan_trees(std::span<DraftJob> jobs);
    int plan_pass(std::span<const DraftJob> jobs);
    Status catch_up(DraftContext& context, std::span<const DraftJob> jobs, RoundStep& step, bool is_last);
    void keep_outputs(std::span<const DraftJob> jobs, RoundStep& step);

    std::unique_ptr<ModelBackbone> backbone_;
    DraftModelRows rows_;
    TreeGrowth growth_;
    DecoderBatch batch_;
    std::vector<GrowingTree> trees_;  ///< of a round
    TokenId* d_tokens_ = nullptr;     ///< of the slots being processed
    int max_pass_ = 0;                ///< rows of a pass of the catch-up, at most
};

Status DraftModel::check(const DraftJob& job) const {
    const DraftModelState& state = state_for(job);
    const int tokens = static_cast<int>(job.tokens.size()), positions = properties().positions;
    if (tokens == 0) return failed("{}: a sequence without tokens has no root", draft_model_id);
    if (tokens < state.cache.length())
        return failed("{}: a text of {} tokens is shorter than the {} that its state has", draft_model_id,
                      tokens, state.cache.length());
    if (state.keeps_slots && tokens > state.num_rows)
        return failed("{}: {} slots exceed the {} that the state keeps", draft_model_id, tokens,
                      state.num_rows);
    const int depth = job.tree.nodes > 1 ? job.tree.depth : 0;
    if (tokens + depth > positions)
        return failed("{}: a tree of depth {} after {} tokens exceeds its {} positions; clip the tree",
                      draft_model_id, depth, tokens, positions);
    return {};
}

Status DraftModel::begin(DraftContext& context, std::span<DraftJob> jobs) {
    if (context.head == nullptr) return failed("{}: drafting needs an LM head", draft_model_id);
    if (context.head->needs().inputs)
        return bad_input(
            "--drafter {}: the head reads the hidden states of an EAGLE drafter; use another head",
            draft_model_id);
    max_pass_ = context.backend.limits().prefill_rows;
    for (const DraftJob& job : jobs) {
        DraftModelState& state = state_for(job);
        if (state.keeps_slots)
            state.cache.truncate(std::min(state.known, static_cast<int>(job.tokens.size())));
        DS_TRY(check(job));
        state.accepted_slots.reserve(job.tree.levels());
        state.find_accepted(job.tokens);
        state.ensure_free(state.unprocessed(job) + job.tree.drafting_nodes());
        state.nodes.clear();
        state.nodes.reserve(job.tree.drafting_nodes());
    }
    return TreeGrowth::check(context, jobs);
}

/// Reserves memory for the states and passes of the round, before anything is enqueued.
Status DraftModel::reserve(RoundStep& step, std::span<DraftJob> jobs) {
    kernels::Backend& backend = *step.backend;
    int nodes = 0, rows = 0;
    for (const DraftJob& job : jobs) {
        DraftModelState& state = state_for(job);
        if (!state.outputs.reserve(backend.memory(), numel(state.num_rows, state.hidden) * sizeof(float)))
            return backend.out_of_memory(fmt::format("a sequence's state of {}", draft_model_id));
        nodes += max_width(job.tree);
        rows += state.unprocessed(job);
    }
    rows = std::min(rows, max_pass_);
    if (!backbone_->embeddings().load(backend))
        return backend.out_of_memory(fmt::format("the embeddings of {}", draft_model_id));
    d_tokens_ = step.memory.backend.alloc<TokenId>(rows);
    if (!backbone_->layer().reserve(step.memory, std::max(rows, nodes)))
        return step.out_of_memory(fmt::format("{} rows of {}", std::max(rows, nodes), draft_model_id));
    return {};
}

/// Moves the keys and values of accepted nodes next to the committed ones, and commits them.
Status DraftModel::keep_accepted(std::span<DraftJob> jobs, RoundStep& step) {
    std::size_t size = 0;
    for (const DraftJob& job : jobs)
        size += 1 + std::max<std::size_t>(state_for(job).accepted_slots.size(), job.tree.levels());
    const auto ops = step.memory.host.list<kernels::CompactOp>(jobs.size());
    const auto values = step.memory.host.list<std::int32_t>(size);
    auto* paths = step.memory.backend.alloc<std::int32_t>(size);
    DS_TRY(step.check_memory("the accepted nodes of the drafter"));
    std::size_t moved = 0, used = 0;
    for (const DraftJob& job : jobs) {
        DraftModelState& state = state_for(job);
        const std::size_t count = state.accepted_slots.size();
        // A chain's nodes are next to each other already.
        if (count > 0 && state.accepted_slots.back() != static_cast<int>(count) - 1) {
            std::ranges::copy(state.accepted_slots, values.begin() + static_cast<std::ptrdiff_t>(used));
            values[used + count] = static_cast<std::int32_t>(count);
            ops[moved++] = state.cache.path_move(paths + used, paths + used + count, static_cast<int>(count));
            used += count + 1;
        }
        state.cache.commit(static_cast<int>(count));
        state.accepted_slots.clear();
    }
    if (moved == 0) return {};
    step.backend->upload(paths, values.data(), used * sizeof(std::int32_t));
    step.backend->compact(ops.first(moved));
    return {};
}

/// Lists the trees that grow. Their roots are the last tokens.
void DraftModel::plan_trees(std::span<DraftJob> jobs) {
    trees_.clear();
    for (DraftJob& job : jobs) {
        job.rows_per_call.clear();
        if (job.tree.nodes <= 1) continue;
        DraftModelState& state = state_for(job);
        const int committed = static_cast<int>(job.tokens.size());
        trees_.push_back({.job = &job,
                          .output = state.output(committed - 1),
                          .cache = &state.cache,
                          .committed = committed,
                          .free_slot = std::max(committed, state.known)});
    }
}

/// The trees' growth begins within the last pass of the catch-up.
Status DraftModel::enqueue(DraftContext& context, std::span<DraftJob> jobs, RoundStep& step) {
    if (!rows_.begin(step, jobs)) return step.out_of_memory(fmt::format("the trees of {}", draft_model_id));
    DS_TRY(keep_accepted(jobs, step));
    DS_TRY(reserve(step, jobs));
    plan_trees(jobs);
    if (!trees_.empty()) DS_TRY(growth_.prepare(context, step, trees_));
    int rows = 0;
    for (const DraftJob& job : jobs) rows += state_for(job).unprocessed(job);
    if (rows == 0 && !trees_.empty()) growth_.begin(context);
    while (rows > 0) {
        rows -= plan_pass(jobs);
        DS_TRY(catch_up(context, jobs, step, rows == 0));
    }
    return trees_.empty() ? Status() : growth_.enqueue(context);
}

/// Sets the slots of the next pass, job after job, and returns their number.
int DraftModel::plan_pass(std::span<const DraftJob> jobs) {
    int rows = 0;
    for (const DraftJob& job : jobs) {
        DraftModelState& state = state_for(job);
        state.pass_rows = std::min(state.unprocessed(job), max_pass_ - rows);
        rows += state.pass_rows;
    }
    return rows;
}

/// Enqueues the planned pass over tokens without waiting. The trees grow after the last pass.
Status DraftModel::catch_up(DraftContext& context, std::span<const DraftJob> jobs, RoundStep& step,
                            bool is_last) {
    EagleLayer& layer = backbone_->layer();
    batch_.clear();
    for (const DraftJob& job : jobs) {
        DraftModelState& state = state_for(job);
        const int slot = state.cache.length();
        for (int i = 0; i < state.pass_rows; ++i)
            batch_.add_row(state.cache, slot + i, slot + i, slot + i + 1);
    }
    const int rows = batch_.rows();
    const bool grows = is_last && !trees_.empty();
    if (grows) DS_TRY(rows_.upload_layouts(trees_, batch_));
    const auto tokens = step.memory.host.list<TokenId>(rows);
    DS_TRY(step.check_memory("the drafter's tokens"));
    auto to = tokens.begin();
    for (const DraftJob& job : jobs) {
        const DraftModelState& state = state_for(job);
        to = std::ranges::copy(job.tokens.subspan(state.cache.length(), state.pass_rows), to).out;
    }
    step.backend->upload(d_tokens_, tokens.data(), tokens.size_bytes());
    {
        DeviceSpans::Scope scope(step.spans, context.phases, Phase::backbone, 0, rows,
                                 rows_.pass_bytes(batch_));
        rows_.enqueue_embeddings(d_tokens_, rows);
        if (grows) growth_.begin(context);
        DS_TRY(layer.enqueue(batch_, nullptr));
    }
    keep_outputs(jobs, step);
    for (const DraftJob& job : jobs) state_for(job).commit_pass();
    return step.check_memory("the drafter's tokens");
}

/// Copies the outputs of the pass that the states keep: of each state in it, the last one at least.
void DraftModel::keep_outputs(std::span<const DraftJob> jobs, RoundStep& step) {
    const auto ops = step.memory.host.list<kernels::CopyRowsOp>(jobs.size());
    if (!step.memory.enough()) return;
    const int d = backbone_->shape().hidden;
    std::size_t copied = 0;
    int end = 0;
    for (const DraftJob& job : jobs) {
        DraftModelState& state = state_for(job);
        const int count = state.pass_rows, rows = state.keeps_slots ? count : 1;
        if (count == 0) continue;
        end += count;
        ops[copied++] = {.from = backbone_->layer().outputs() + numel(end - rows, d),
                         .from_stride = d,
                         .count = rows,
                         .cols = d,
                         .to = state.output(state.cache.length() + count - rows),
                         .to_stride = d};
    }
    step.backend->copy_rows(ops.first(copied));
}

/// Returns the precision of a file's weights.
Result<kernels::Precision> choose_precision(const ModelFile& file, const std::string& option,
                                            const kernels::Backend& backend) {
    const auto given = kernels::precision_from(option);
    if (!backend.is_host()) {
        if (given && *given != kernels::Precision::bf16)
            return bad_input("drafter option precision={}: weights on a device are bf16; use bf16 or auto",
                             option);
        return kernels::Precision::bf16;
    }
    return given.value_or(file.auto_precision());
}

/// Returns the memory left for a draft model; nullopt if it is unknown.
std::optional<std::uint64_t> memory_left(const Target& target) {
    const kernels::Backend& backend = target.backend();
    if (backend.is_host()) return available_memory();
    const std::uint64_t all = backend.info().memory_bytes;
    return all - std::min<std::uint64_t>(all, target.weight_bytes());
}

/// `path`: a GGUF file or a model folder; option_names may follow.
Result<std::unique_ptr<Drafter>> make_draft_model(const std::string& path, const Target& target,
                                                  kernels::Backend& backend) {
    DS_ASSIGN(const DrafterSource source, parse_drafter_source(path, option_names));
    DS_ASSIGN(const std::string option, source.choice("precision", precisions));
    DS_ASSIGN(ModelFile file, open_model_file(source.path));
    DS_ASSIGN(const kernels::Precision precision, choose_precision(file, option, backend));
    Notes notes = file.notes;
    DS_TRY(check_vocabularies({source.path, file.tokenizer.get(), file.config.vocab},
                              {target.path(), target.tokenizer(), target.config().vocab}, notes));
    DS_TRY(
        check_draft_memory(file, precision, target.weight_bytes(), memory_left(target), backend.is_host()));
    DS_ASSIGN(auto model, Target::build(std::move(file), backend, precision));
    return make_draft_model_drafter(std::move(model), target, std::move(notes));
}

}  // namespace

Result<std::unique_ptr<Drafter>> make_draft_model_drafter(std::unique_ptr<Target> model, const Target& target,
                                                          Notes notes) {
    // A recorded target has its LM head alone.
    if (model->weight_bytes() > target.weight_bytes() && !target.layers().empty())
        add_note(
            notes,
            "draft-model:{}: a pass reads {:.2f} GiB, more than the target's {:.2f} GiB; drafts can only "
            "slow decoding down",
            model->path(), static_cast<double>(model->weight_bytes()) / gib,
            static_cast<double>(target.weight_bytes()) / gib);
    if (model->config().context < target.config().context)
        add_note(notes, "draft-model:{}: has {} positions, the target {}; rounds beyond them draft nothing",
                 model->path(), model->config().context, target.config().context);
    auto backbone = std::make_unique<ModelBackbone>(std::move(model));
    DS_TRY(backbone->prepare(target.config().vocab));
    return std::make_unique<DraftModel>(std::move(backbone), std::move(notes));
}

DrafterInfo describe_draft_model() {
    return {.id = draft_model_id,
            .name = "Draft model",
            .paper = "speculative decoding, arXiv 2211.17192",
            .help =
                "a smaller language model with the target's tokenizer and an LM head of its own; a GGUF file "
                "or a model folder, with precision=f32|bf16|int8|int4 behind it",
            .trains_heads = false,
            // llama.cpp's and SGLang's default: each further node costs a pass of the model.
            .usual_tree = "chain=3",
            .options = option_names,
            .make = make_draft_model};
}

}  // namespace draftscope
