#include "engine/draft/tree_growth.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/numel.h"

namespace draftscope {
namespace {

int max_levels(std::span<const GrowingTree> trees) {
    int levels = 0;
    for (const GrowingTree& tree : trees) levels = std::max(levels, tree.job->tree.levels());
    return levels;
}

}  // namespace

TreePlan TreeGrowth::plan(const TreeSpec& tree) {
    const int candidates = tree.topk + tree.depth * tree.topk * tree.topk;
    return {tree.choices ? tree.nodes : std::min(tree.nodes - 1, candidates) + 1, tree.levels()};
}

int TreeGrowth::planned_rows(const GrowingTree& tree, int level) const {
    return rows_.shared_logits() ? 1 : width_at(tree.job->tree, level);
}

Status TreeGrowth::check(const DraftContext& context, std::span<const DraftJob> jobs) {
    if (on_host()) return {};
    int levels = 0, topk = 0;
    for (const DraftJob& job : jobs) {
        levels = std::max(levels, job.tree.levels());
        topk = std::max(topk, job.tree.topk);
    }
    for (const DraftJob& job : jobs) DS_TRY(check_ops(job.tree, topk));
    if (context.sampled == nullptr) return {};
    const int support = context.head->support_columns(levels).support;
    if (support > kernels::max_sample_columns)
        return bad_input("a device samples drafts from at most {} tokens, but the head has {}",
                         kernels::max_sample_columns, support);
    return {};
}

/// Reserves memory for all levels before the first, because a buffer loses its contents when it grows.
bool TreeGrowth::prepare(const DraftContext& context, std::span<GrowingTree> trees) {
    kernels::Backend& backend = rows_.device();
    topk_ = 0;
    int max_nodes = 0;
    cells_ = 0;
    index_stride_ = kernels::max_topk;
    for (const GrowingTree& tree : trees) {
        const int widest = max_width(tree.job->tree);
        topk_ = std::max(topk_, tree.job->tree.topk);
        index_stride_ = std::max(index_stride_, widest);
        max_nodes += widest;
    }
    for (const GrowingTree& tree : trees) cells_ += numel(total_width(tree.job->tree), topk_);
    head_ = context.head;
    const int count_of_trees = static_cast<int>(trees.size());
    const int levels = levels_ = max_levels(trees);
    // Drafts are sampled separately for each node.
    const bool sampled = context.sampled != nullptr;
    const int max_rows = rows_.shared_logits() && !sampled ? count_of_trees : max_nodes;
    const std::size_t nodes = max_nodes, rows = max_rows;
    specs_.clear();
    for (const GrowingTree& tree : trees) specs_.push_back(&tree.job->tree);
    words_ = set_words_ = 0;
    // First the head: its work for a round that failed may still use the rows' memory.
    bool enough = head_->reserve(backend, levels, max_rows, topk_) && place_downloads(trees) &&
                  rows_.make_room(count_of_trees, max_nodes) &&
                  static_levels_.upload(backend, specs_, topk_, sampled);
    if (on_host()) static_rows_.resize(numel(count_of_trees, index_stride_));
    enough = enough && samples_.prepare(backend, context, trees, levels, topk_, rows_.shared_logits());
    const auto words = [&](kernels::DeviceBuffer& buffer, std::size_t values) {
        enough = enough && buffer.reserve(backend, values * sizeof(float));
    };
    words(best_, rows * topk_);
    words(logits_, rows * topk_);
    words(sums_, rows);
    words(scores_, numel(count_of_trees, index_stride_));
    words(places_, numel(count_of_trees, index_stride_));
    words(tokens_, nodes);
    words(parents_, nodes);
    words(pool_, 5 * cells_);
    words(roots_, 2 * trees.size() * rows_.hidden());
    const void* before[] = {ancestor_slots(0), ancestor_slots(1)};
    for (kernels::DeviceBuffer& one : tails_) words(one, nodes * levels);
    if (before[0] != ancestor_slots(0) || before[1] != ancestor_slots(1)) rows_.tails_moved();
    return enough;
}

/// Assigns indices to the values that the head stores, and reserves memory for them.
bool TreeGrowth::place_downloads(std::span<const GrowingTree> trees) {
    const std::size_t table = trees.size() * (static_cast<std::size_t>(levels_) + 1);
    set_first_.assign(table, 0);
    set_words_ = 0;
    words_ = table;
    download_first_.clear();
    for (int level = 0; level <= levels_; ++level) {
        // After its last head call, a sequence keeps the set of that call.
        const int call = std::min(level, levels_ - 1);
        int rows = 0;
        for (std::size_t i = 0; i < trees.size(); ++i) {
            const int last = trees[i].job->tree.levels() - 1;
            std::int32_t& first = set_first_[set_at(static_cast<int>(i), level)];
            if (level > last) {
                first = set_first_[set_at(static_cast<int>(i), last)];
                continue;
            }
            const int mine = planned_rows(trees[i], level);
            rows += mine;
            first = static_cast<std::int32_t>(set_words_);
            set_words_ += head_->shape(level, mine).set;
        }
        download_first_.push_back(words_);
        if (level < levels_) words_ += head_->shape(call, rows).downloads;
    }
    kernels::Backend& backend = rows_.device();
    return d_left_.resize_at_least(backend, words_) && d_sets_.resize_at_least(backend, set_words_);
}

void TreeGrowth::activate(std::span<GrowingTree> trees) {
    active_.clear();
    for (GrowingTree& tree : trees) active_.push_back(&tree);
}

void TreeGrowth::begin(DraftContext& context, std::span<GrowingTree> trees, DeviceSpans& spans,
                       const TreeStep& step) {
    spans_ = &spans;
    num_calls_ = 0;
    sets_requested_ = set_words_ > 0 && step.sets_come();
    wants_sets_ = set_words_ > 0 && (head_->needs().sets || sets_requested_);
    place(trees);
    activate(trees);
    begin_head(context, 0, static_cast<int>(trees.size()), roots_.as<float>());
}

Status TreeGrowth::enqueue(DraftContext& context, std::span<GrowingTree> trees, TreeStep& step) {
    for (int level = 0; !active_.empty(); ++level) {
        int rows = 0;
        for (const GrowingTree* tree : active_) rows += rows_of(*tree);
        DS_TRY(enqueue_rows(context, level, rows));
        DS_TRY(propose(context, level, rows));
        if (context.observer != nullptr && context.observer->observing()) DS_TRY(show_level(context, level));
        std::erase_if(active_, [&](const GrowingTree* tree) {
            return level >= tree->job->tree.depth || tree->nodes == 0;
        });
    }
    if (step.sets_come()) hand_sets(trees, step);
    if (samples_.active()) step.use_drafts(samples_.rows(names_));
    rerank(context.phases, trees, step);
    sets_here_ = head_->needs().sets && context.coverage_wanted;
    left_.resize(words_ + (sets_here_ ? set_words_ : 0));
    step.add_download(left_.data(), d_left_.as<void>(), words_ * sizeof(std::int32_t));
    if (sets_here_)
        step.add_download(left_.data() + words_, d_sets_.as<void>(), set_words_ * sizeof(std::int32_t));
    return {};
}

/// Waits for the candidates so far and reports their trees to the observer.
Status TreeGrowth::show_level(DraftContext& context, int level) {
    for (const GrowingTree* tree : active_) {
        DraftTree partial;
        DS_TRY(read_partial(*tree, level, partial));
        context.observer->level_done(tree->job->sequence, level, [&] { return partial; });
    }
    return {};
}

/// Reads the tree of the candidates up to `level`.
Status TreeGrowth::read_partial(const GrowingTree& tree, int level, DraftTree& out) {
    kernels::Backend& backend = rows_.device();
    const TreePlan plan{std::min(tree.job->tree.nodes, tree.proposed + 1), level + 1};
    if (!partial_.place(backend, {&plan, 1}))
        return backend.out_of_memory(fmt::format("the trees of level {}", level));
    kernels::RerankOp op = rerank_op(tree);
    partial_.aim(op, 0);
    backend.rerank(op);
    partial_.enqueue_download();
    DS_TRY(backend.synchronize());
    return partial_.read_tree(0, out);
}

/// Passes the tokens that the trees' rows can propose to the target's pass.
void TreeGrowth::hand_sets(std::span<const GrowingTree> trees, TreeStep& step) {
    auto* sizes = d_left_.as<std::int32_t>();
    for (const GrowingTree& tree : trees)
        for (int level = tree.job->tree.levels(); level <= levels_; ++level)
            rows_.device().copy(sizes + set_at(tree.place, level),
                                sizes + set_at(tree.place, tree.job->tree.levels() - 1),
                                sizeof(std::int32_t));
    std::vector<int> indices;
    for (const GrowingTree& tree : trees) indices.push_back(tree.job->tree_index);
    step.use_sets(d_sets_.as<TokenId>(), set_first_, sizes, indices);
}

Status TreeGrowth::collect(const TreeStep& step, std::span<DraftJob> jobs) {
    for (std::size_t i = 0; i < num_calls_; ++i) {
        const Call& enqueued = calls_[i];
        call_sets_.clear();
        call_sizes_.clear();
        for (const HeadSequence& sequence : enqueued.sequences) {
            if (!head_->needs().sets) break;
            const std::size_t at = set_at(sequence.place, enqueued.level);
            const int room = head_->shape(enqueued.level, sequence.rows).set;
            call_sizes_.push_back(std::clamp(left_[at], 0, room));
            call_sets_.push_back(sets_here_
                                     ? std::span<const TokenId>(left_).subspan(words_ + set_first_[at], room)
                                     : std::span<const TokenId>());
        }
        head_->collect(
            {*spans_, enqueued.level, enqueued.rows, enqueued.sequences, call_sets_, call_sizes_,
             std::span<const std::int32_t>(left_).subspan(enqueued.downloads, enqueued.download_count)});
    }
    num_calls_ = 0;
    for (DraftJob& job : jobs) {
        DS_TRY(step.read_tree(job.tree_index, job.out));
        DS_TRY(check_numbers(job));
    }
    return {};
}

Error TreeGrowth::not_numbers(const DraftJob& job, int level) const {
    return failed(
        "{}: the log-probabilities of its drafts are not numbers (sequence {}, position {}, level {}); the "
        "weights of the drafter or its head contain NaN or overflow: check their files",
        name_, job.sequence, job.tokens.size() - 1, level);
}

/// Returns an error if a row of the head had no finite log-probability: if the best of a node's drafts, which
/// is the first, has none. Sampling finds no drafts in such a row.
Status TreeGrowth::check_numbers(const DraftJob& job) const {
    const DraftTree& tree = job.out;
    if (samples_.active() && tree.size() == 1 && job.tree.nodes > 1) return not_numbers(job, 0);
    for (int i = 1; i < tree.size(); ++i) {
        if (std::isfinite(tree.logprobs[i])) continue;
        const auto same_parent = std::find(tree.parents.begin() + 1, tree.parents.end(), tree.parents[i]);
        if (same_parent == tree.parents.begin() + i) return not_numbers(job, tree.depths[i] - 1);
    }
    return {};
}

/// Returns the op that re-ranks a tree's pool, without the destination.
kernels::RerankOp TreeGrowth::rerank_op(const GrowingTree& tree) const {
    kernels::RerankOp op;
    op.candidates = tree.proposed;
    op.by_score = tree.job->tree.order == TreeOrder::fr;
    op.pool_tokens = pool_.as<std::int32_t>() + tree.pool;
    op.pool_logprobs = pool_.as<float>() + cells_ + tree.pool;
    op.pool_scores = pool_.as<float>() + 2 * cells_ + tree.pool;
    op.pool_parents = pool_.as<std::int32_t>() + 3 * cells_ + tree.pool;
    op.sampled = samples_.active();
    if (op.sampled) op.pool_rows = pool_.as<std::int32_t>() + 4 * cells_ + tree.pool;
    op.root_row = tree.place;
    op.root = tree.job->tokens.back();
    // The target has one slot for each token before the root.
    op.first_slot = op.first_position = static_cast<int>(tree.job->tokens.size()) - 1;
    return op;
}

void TreeGrowth::rerank(PhaseRecorder& phases, std::span<const GrowingTree> trees, TreeStep& step) {
    int candidates = 0;
    for (const GrowingTree& tree : trees) candidates += tree.proposed;
    DeviceSpans::Scope scope(*spans_, phases, Phase::rerank, 0, candidates, 0);
    reranks_.clear();
    for (const GrowingTree& tree : trees)
        step.aim(reranks_.emplace_back(rerank_op(tree)), tree.job->tree_index);
    rows_.device().rerank(reranks_);
}

/// Sets the trees' indices for level 0 and gathers the inputs of the roots' rows.
void TreeGrowth::place(std::span<GrowingTree> trees) {
    std::size_t pool = 0;
    copies_.clear();
    const int width = 2 * rows_.hidden();
    for (std::size_t i = 0; i < trees.size(); ++i) {
        GrowingTree& tree = trees[i];
        tree.place = tree.first_node = tree.first_row = static_cast<int>(i);
        tree.pool = pool;
        tree.proposed = tree.slots = 0;
        tree.nodes = 1;
        pool += numel(total_width(tree.job->tree), topk_);
        copies_.push_back(
            {tree.input, width, nullptr, 1, width, roots_.as<float>() + numel(tree.place, width), width});
    }
    if (inputs_wanted()) rows_.device().copy_rows(copies_);
}

/// Enqueues the rows of the nodes that the previous level selected.
Status TreeGrowth::enqueue_rows(DraftContext& context, int level, int rows) {
    LevelRows::Level enqueued{context, *spans_, level, rows, active_, inputs_wanted()};
    if (level > 0) {
        enqueued.tokens = tokens_.as<std::int32_t>();
        enqueued.parents = parents_.as<std::int32_t>();
        enqueued.ancestor_slots = ancestor_slots(level - 1);
    }
    return rows_.enqueue(enqueued, [&](const float* inputs) { begin_head(context, level, rows, inputs); });
}

/// Begins the head's call. The rows of the level are computed later.
void TreeGrowth::begin_head(DraftContext& context, int level, int rows, const float* inputs) {
    if (calls_.size() == num_calls_) calls_.emplace_back();
    Call& enqueued = calls_[num_calls_++];
    enqueued.level = level;
    enqueued.rows = rows;
    enqueued.downloads = download_first_[level];
    enqueued.download_count = download_first_[static_cast<std::size_t>(level) + 1] - enqueued.downloads;
    enqueued.sequences.clear();
    for (const GrowingTree* tree : active_) {
        const std::size_t at = set_at(tree->place, level);
        HeadSequence& one = enqueued.sequences.emplace_back();
        one = {tree->job->head_state, tree->place, tree->first_row, rows_of(*tree)};
        if (!wants_sets_) continue;
        one.set = d_sets_.as<TokenId>() + set_first_[at];
        one.set_size = d_left_.as<std::int32_t>() + at;
    }
    HeadCall call = call_of(context, enqueued);
    if (head_->needs().inputs) call.inputs = inputs;
    head_->begin(call);
}

HeadCall TreeGrowth::call_of(DraftContext& context, const Call& enqueued) {
    HeadCall call{.backend = rows_.device(),
                  .phases = context.phases,
                  .spans = *spans_,
                  .level = enqueued.level,
                  .rows = enqueued.rows,
                  .k = topk_,
                  .sequences = enqueued.sequences};
    call.downloads = d_left_.as<std::int32_t>() + enqueued.downloads;
    call.sets_requested = sets_requested_;
    call.ids = best_.as<std::int32_t>();
    call.logits = logits_.as<float>();
    call.sums = sums_.as<float>();
    return call;
}

Status TreeGrowth::enqueue_head(DraftContext& context, int rows) {
    HeadCall call = call_of(context, calls_[num_calls_ - 1]);
    if (samples_.active()) samples_.aim(call);
    call.x = rows_.enqueue_head_rows(rows);
    head_->propose(call);
    names_ = call.tokens;
    // On the CPU, the next op would read what a head without memory has not written.
    return on_host() ? rows_.device().synchronize() : Status();
}

/// Enqueues the level's candidates and the next level's nodes.
Status TreeGrowth::propose(DraftContext& context, int level, int rows) {
    const bool host = on_host();
    DS_TRY(enqueue_head(context, rows));
    if (samples_.active())
        samples_.enqueue(context, *spans_, level, active_, best_.as<std::int32_t>(), logits_.as<float>());
    DeviceSpans::Scope enqueued(*spans_, context.phases, Phase::topk, level, rows,
                                host ? 0 : numel(rows, topk_) * (sizeof(float) + sizeof(std::int32_t)));
    int next_node = 0, next_row = 0;
    beams_.clear();
    for (GrowingTree* tree : active_) {
        tree->job->rows_per_call.push_back(rows_of(*tree));
        const bool goes_on = level < tree->job->tree.depth;
        beams_.push_back(extend(*tree, level, goes_on, next_node));
        const int proposing = tree->nodes;
        counts_[0] = proposing * topk_;
        counts_[1] = goes_on ? width_at(tree->job->tree, level + 1) : 0;
        if (host) rows_.device().beam(beams_.back());
        if (samples_.active() && proposing > 0 && counts_[0] == 0) return not_numbers(*tree->job, level);
        tree->proposed += counts_[0];
        tree->first_node = next_node;
        tree->first_row = next_row;
        if (!goes_on) continue;
        tree->slots += level == 0 ? 0 : proposing;
        tree->nodes = counts_[1];
        next_node += tree->nodes;
        next_row += rows_of(*tree);
    }
    if (!host) rows_.device().beam(beams_);
    return {};
}

/// Returns the op that appends the level's candidates to the tree's pool. If `goes_on`, the next level's
/// nodes start at `next_first`.
kernels::BeamOp TreeGrowth::extend(const GrowingTree& tree, int level, bool goes_on, int next_first) {
    const int nodes = tree.nodes;
    const bool drawn = samples_.active();
    // Drafts are sampled separately for each node.
    const std::size_t first = numel(drawn ? tree.first_node : tree.first_row, topk_);
    auto* pool = pool_.as<std::int32_t>();
    kernels::BeamOp op;
    op.level = level;
    op.rows = nodes;
    op.k = topk_;
    op.shared_logits = rows_.shared_logits() && !drawn;
    op.sampled = drawn;
    op.ids = best_.as<std::int32_t>() + first;
    op.logits = logits_.as<float>() + first;
    op.logsumexp = sums_.as<float>() + tree.first_row;
    op.tokens = names_;
    const std::size_t at = tree.pool + tree.proposed;
    op.pool_tokens = pool + at;
    op.pool_logprobs = pool_.as<float>() + cells_ + at;
    op.pool_scores = pool_.as<float>() + 2 * cells_ + at;
    op.pool_parents = pool + 3 * cells_ + at;
    if (drawn) {
        op.pool_rows = pool + 4 * cells_ + at;
        op.next_first_row = samples_.first_row(level + 1) + next_first;
    }
    op.row_indices = places_.as<std::int32_t>() + numel(tree.place, index_stride_);
    op.first_index = tree.proposed;
    op.keep = goes_on ? width_at(tree.job->tree, level + 1) : 0;
    static_levels_.set(op, tree.place, level);
    if (on_host()) {
        op.counts = counts_;
        op.static_rows = static_rows_.data() + numel(tree.place, index_stride_);
    }
    op.first_row = tree.first_node;
    op.first_slot = tree.free_slot + tree.slots + (level == 0 ? 0 : nodes);
    op.scores = scores_.as<float>() + numel(tree.place, index_stride_);
    op.next_tokens = tokens_.as<std::int32_t>() + next_first;
    op.next_rows = parents_.as<std::int32_t>() + next_first;
    // A node of level l has l slots: its own and those of its ancestors below the root.
    op.ancestor_slots = level == 0 ? nullptr : ancestor_slots(level - 1) + numel(tree.first_node, level);
    op.next_ancestor_slots = ancestor_slots(level) + numel(next_first, level + 1);
    return op;
}

}  // namespace draftscope
