#include "engine/draft/tree_growth.h"

#include <algorithm>
#include <cassert>
#include <numeric>
#include <vector>

#include "base/numel.h"

namespace draftscope {
namespace {

/// Returns the number of nodes drafted from at each level, starting with the root's.
std::vector<int> widths_of(const TreeSpec& tree) {
    std::vector<int> widths(tree.levels(), tree.choices ? 0 : tree.topk);
    widths[0] = 1;
    if (tree.choices)
        for (const TreeChoices::Node& node : tree.choices->nodes)
            if (node.inner) ++widths[node.depth];
    return widths;
}

/// Returns the number of rows of all levels.
int rows_of(std::span<const int> widths) {
    return std::accumulate(widths.begin(), widths.end(), 0);
}

/// Checks a tree whose rows have `topk` candidates each against the limits of the device's ops.
Status check_ops(const TreeSpec& tree, int topk) {
    const std::vector<int> widths = widths_of(tree);
    const int widest = *std::max_element(widths.begin(), widths.end()), candidates = rows_of(widths) * topk;
    if (topk > kernels::max_topk || widest > kernels::max_topk)
        return bad_input("--tree: a device grows at most {} candidates and nodes per level, found {}",
                         kernels::max_topk, std::max(topk, widest));
    if (!kernels::can_rerank(candidates, std::min(tree.nodes, candidates + 1)))
        return bad_input(
            "--tree: {} candidates, but a device re-ranks at most {}; use a smaller depth or topk",
            candidates, kernels::max_candidates);
    return {};
}

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

DeviceHead& TreeGrowth::find_device_head(LmHead& head) {
    if (DeviceHead* own = head.device_head()) return *own;
    direct_.use(head);
    return direct_;
}

Status TreeGrowth::check(const DraftContext& context, std::span<const DraftJob> jobs) {
    int levels = 0, topk = 0;
    std::vector<HeadState*> states;
    for (const DraftJob& job : jobs) {
        states.push_back(job.head_state);
        levels = std::max(levels, job.tree.levels());
        topk = std::max(topk, job.tree.topk);
    }
    for (const DraftJob& job : jobs) DS_TRY(check_ops(job.tree, topk));
    ProposeContext call{context.exec, context.phases};
    DeviceHead& head = find_device_head(*context.head);
    head.finish_begin_round(call, states);
    if (context.sampled == nullptr) return {};
    const int support = head.support_columns(levels).support;
    if (support > kernels::max_sample_columns)
        return bad_input("a device samples drafts from at most {} tokens, but the head has {}",
                         kernels::max_sample_columns, support);
    return {};
}

/// Reserves memory for all levels before the first, because a buffer loses its contents when it grows.
bool TreeGrowth::prepare(const DraftContext& context, std::span<GrowingTree> trees) {
    kernels::Device& device = rows_.device();
    topk_ = 0;
    int max_nodes = 0;
    cells_ = 0;
    for (GrowingTree& tree : trees) {
        topk_ = std::max(topk_, tree.job->tree.topk);
        tree.widths = widths_of(tree.job->tree);
        max_nodes += *std::max_element(tree.widths.begin(), tree.widths.end());
    }
    for (const GrowingTree& tree : trees) cells_ += numel(rows_of(tree.widths), topk_);
    head_ = &find_device_head(*context.head);
    sampled_ = context.sampled;
    const int count_of_trees = static_cast<int>(trees.size());
    const int levels = levels_ = max_levels(trees);
    // Drafts are sampled separately for each node.
    const int max_rows = rows_.shared_logits() && sampled_ == nullptr ? count_of_trees : max_nodes;
    const std::size_t nodes = max_nodes, rows = max_rows;
    bool enough = rows_.make_room(count_of_trees, max_nodes) &&
                  head_->reserve(device, levels, max_rows, topk_) && place_downloads(trees) &&
                  place_choices(trees) && (sampled_ == nullptr || place_samples(trees));
    const auto words = [&](kernels::DeviceBuffer& buffer, std::size_t values) {
        enough = enough && buffer.reserve(device, values * sizeof(float));
    };
    words(best_, rows * topk_);
    words(logits_, rows * topk_);
    words(sums_, rows);
    words(scores_, trees.size() * kernels::max_topk);
    words(places_, trees.size() * kernels::max_topk);
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
            const int mine = rows_at(trees[i], level);
            rows += mine;
            first = static_cast<std::int32_t>(set_words_);
            set_words_ += head_->max_set_size(level, mine);
        }
        download_first_.push_back(words_);
        if (level < levels_) words_ += head_->num_downloads(call, rows);
    }
    kernels::Device& device = rows_.device();
    return d_left_.resize_at_least(device, words_) && d_sets_.resize_at_least(device, set_words_);
}

/// Generates the uniforms of all samples, in the order of their rows, and reserves memory for the rows.
bool TreeGrowth::place_samples(std::span<const GrowingTree> trees) {
    kernels::Device& device = rows_.device();
    columns_ = head_->support_columns(levels_);
    uniforms_.clear();
    support_sizes_.clear();
    first_sampled_rows_.assign(1, 0);
    int widest = 0;
    for (int level = 0; level < levels_; ++level) {
        int rows = 0;
        for (const GrowingTree& tree : trees) {
            if (level >= tree.job->tree.levels()) continue;
            const int nodes = nodes_at(tree, level);
            rows += nodes;
            const auto sequence = static_cast<std::uint64_t>(tree.job->sequence);
            const auto position = static_cast<std::int64_t>(tree.job->tokens.size()) + level;
            const int size = columns_.own ? head_->support_size(level, tree.job->head_state) : 0;
            support_sizes_.insert(support_sizes_.end(), nodes, size);
            for (int node = 0; node < nodes; ++node)
                for (int order = 0; order < topk_; ++order)
                    uniforms_.push_back(draft_uniform(sampled_->seed, sequence, position, order));
        }
        widest = std::max(widest, rows);
        first_sampled_rows_.push_back(first_sampled_rows_.back() + rows);
    }
    // The second half is scratch memory of the acceptance. Until then it holds the shared rows of left_at().
    const int rows = first_sampled_rows_.back();
    if (!support_logits_.reserve(device, 2 * numel(rows, columns_.stride) * sizeof(float)) ||
        !d_uniforms_.upload(device, uniforms_) || !lowest_.resize_at_least(device, numel(widest, 1)) ||
        !last_.resize_at_least(device, numel(widest, 1)))
        return false;
    if (!columns_.own) return true;
    const auto trees_more = static_cast<int>(trees.size());
    support_sizes_.resize(support_sizes_.size() + trees.size());
    return support_tokens_.reserve(device,
                                   numel(rows + trees_more, columns_.stride) * sizeof(std::int32_t)) &&
           d_support_sizes_.upload(device, support_sizes_);
}

/// Lists and uploads the candidates that are nodes of static trees. Nodes are ordered by level and then by
/// path, like the candidates of their parents.
bool TreeGrowth::place_choices(std::span<const GrowingTree> trees) {
    choices_.clear();
    choices_first_.clear();
    if (!trees.front().job->tree.choices) return true;
    for (const GrowingTree& tree : trees) {
        const std::vector<TreeChoices::Node>& nodes = tree.job->tree.choices->nodes;
        std::vector<int> row_of(nodes.size(), 0);  // index among the rows of its level
        std::size_t next = 0;
        for (int level = 0; level <= levels_; ++level) {
            choices_first_.push_back(choices_.size());
            if (level > tree.job->tree.depth) continue;
            const std::size_t first = choices_.size();
            choices_.resize(first + numel(nodes_at(tree, level), topk_), 0);
            int rows = 0, sibling = 0;
            for (; next < nodes.size() && nodes[next].depth == level + 1; ++next) {
                const TreeChoices::Node& node = nodes[next];
                const int above = node.parent < 0 ? 0 : row_of[node.parent];
                const bool first_child = next == 0 || nodes[next - 1].parent != node.parent;
                sibling = first_child ? 0 : sibling + 1;
                // Samples are taken in order, as in BeamExpansion.
                const int at = above * topk_ + (sampled_ != nullptr ? sibling : node.rank);
                choices_[first + at] = 1;
                if (!node.inner) continue;
                row_of[next] = rows++;
                choices_.push_back(at);
            }
        }
    }
    return d_choices_.upload(rows_.device(), choices_);
}

/// Copies the shared row of each tree to all its nodes, because the acceptance modifies each node's row.
void TreeGrowth::give_each_node_a_row(std::span<GrowingTree* const> active, int level) {
    const int stride = columns_.stride;
    std::vector<kernels::CopyRowsOp> copies;
    int from = left_at(level) - 1, to = first_sampled_row(level), nodes = 0;
    for (const GrowingTree* tree : active) {
        to += nodes;
        nodes = tree->nodes;
        ++from;
        copies.push_back({support_row(from), 0, nullptr, nodes, columns_.support, support_row(to), stride});
        if (!columns_.own) continue;
        copies.push_back(
            copy_of_words(support_tokens(from), 0, nodes, columns_.support, support_tokens(to), stride));
        auto* sizes = d_support_sizes_.as<std::int32_t>();
        if (head_->support_size(level, tree->job->head_state) == size_on_device)
            copies.push_back(copy_of_words(sizes + from, 0, nodes, 1, sizes + to, 1));
    }
    rows_.device().copy_rows(copies);
}

/// Samples the candidates of the level's rows from the logits that the head stored.
void TreeGrowth::sample(DraftContext& context, std::span<GrowingTree* const> active, int level) {
    const int rows = first_sampled_row(level + 1) - first_sampled_row(level);
    DeviceSpans::Scope enqueued(*spans_, context.phases, Phase::topk, level, rows,
                                numel(rows, columns_.support) * sizeof(float));
    if (left_at(level) != first_sampled_row(level)) give_each_node_a_row(active, level);
    kernels::SampleWithoutReplacementOp op;
    op.logits = support_row(first_sampled_row(level));
    op.stride = columns_.stride;
    op.rows = rows;
    op.support = columns_.support;
    op.k = topk_;
    op.temperature = sampled_->temperature;
    op.top_k = sampled_->top_k;
    op.top_p = sampled_->top_p;
    op.uniforms = d_uniforms_.as<double>() + numel(first_sampled_row(level), topk_);
    op.ids = best_.as<std::int32_t>();
    op.logprobs = logits_.as<float>();
    op.min_logit = lowest_.as<float>();
    op.last_tied_id = last_.as<std::int32_t>();
    if (columns_.own) {
        op.sizes = d_support_sizes_.as<std::int32_t>() + first_sampled_row(level);
        op.tokens = support_tokens(first_sampled_row(level));
    }
    rows_.device().sample_without_replacement(op);
}

void TreeGrowth::begin(DraftContext& context, std::span<GrowingTree> trees, DeviceSpans& spans,
                       const TreeStep& step) {
    spans_ = &spans;
    num_calls_ = 0;
    sets_requested_ = set_words_ > 0 && step.sets_come();
    wants_sets_ = set_words_ > 0 && (head_->reads_sets() || sets_requested_);
    place(trees);
    std::vector<GrowingTree*> active;
    for (GrowingTree& tree : trees) active.push_back(&tree);
    begin_head(context, active, 0, static_cast<int>(trees.size()), roots_.as<float>());
}

Status TreeGrowth::enqueue(DraftContext& context, std::span<GrowingTree> trees, TreeStep& step) {
    std::vector<GrowingTree*> active;
    for (GrowingTree& tree : trees) active.push_back(&tree);
    for (int level = 0; !active.empty(); ++level) {
        int rows = 0;
        for (const GrowingTree* tree : active) rows += rows_at(*tree, level);
        DS_TRY(enqueue_rows(context, active, level, rows));
        propose(context, active, level, rows);
        if (context.observer != nullptr && context.observer->observing())
            DS_TRY(show_level(context, trees, level));
    }
    kernels::Device& device = rows_.device();
    if (step.sets_come()) hand_sets(trees, step);
    if (sampled_ != nullptr)
        step.use_drafts({support_row(0), support_row(first_sampled_rows_.back()), columns_.stride,
                         columns_.support, columns_.own ? support_tokens(0) : names_,
                         columns_.own ? d_support_sizes_.as<std::int32_t>() : nullptr});
    rerank(context.phases, trees, step);
    sets_here_ = head_->reads_sets() && context.coverage_wanted;
    left_.resize(words_ + (sets_here_ ? set_words_ : 0));
    device.download(left_.data(), d_left_.as<void>(), words_ * sizeof(std::int32_t));
    if (sets_here_)
        device.download(left_.data() + words_, d_sets_.as<void>(), set_words_ * sizeof(std::int32_t));
    return {};
}

/// Waits for the candidates so far and reports their trees to the observer.
Status TreeGrowth::show_level(DraftContext& context, std::span<const GrowingTree> trees, int level) {
    std::vector<TreePlan> plans;
    for (const GrowingTree& tree : trees)
        plans.push_back({std::min(tree.job->tree.nodes, tree.proposed + 1),
                         std::min(tree.job->tree.levels(), level + 1)});
    kernels::Device& device = rows_.device();
    if (!partial_.place(device, plans))
        return failed("out of device memory for the trees of level {}", level);
    std::vector<kernels::RerankOp> ops;
    for (const GrowingTree& tree : trees)
        partial_.aim(ops.emplace_back(rerank_op(tree)), tree.place, tree.place);
    device.rerank(ops);
    partial_.enqueue_download();
    DS_TRY(device.synchronize());
    for (const GrowingTree& tree : trees) {
        if (level >= tree.job->tree.levels()) continue;
        DraftTree partial;
        DS_TRY(partial_.read_tree(tree.place, partial));
        context.observer->level_done(tree.job->sequence, level, [&] { return partial; });
    }
    return {};
}

/// Passes the tokens that the trees' rows can propose to the target's pass.
void TreeGrowth::hand_sets(std::span<const GrowingTree> trees, TreeStep& step) {
    auto* sizes = d_left_.as<std::int32_t>();
    for (const GrowingTree& tree : trees)
        for (int level = tree.job->tree.levels(); level <= levels_; ++level)
            rows_.device().copy(sizes + set_at(tree.place, level),
                                sizes + set_at(tree.place, tree.job->tree.levels() - 1),
                                sizeof(std::int32_t));
    step.use_sets(d_sets_.as<TokenId>(), set_first_, sizes);
}

void TreeGrowth::collect() {
    std::vector<std::span<const TokenId>> sets;
    std::vector<std::int32_t> sizes;
    for (std::size_t i = 0; i < num_calls_; ++i) {
        const Call& enqueued = calls_[i];
        sets.clear();
        sizes.clear();
        for (const DeviceSequence& sequence : enqueued.sequences) {
            if (!head_->reads_sets()) break;
            const std::size_t at = set_at(sequence.place, enqueued.level);
            const int room = head_->max_set_size(enqueued.level, sequence.rows);
            sizes.push_back(std::clamp(left_[at], 0, room));
            sets.push_back(sets_here_ ? std::span<const TokenId>(left_).subspan(words_ + set_first_[at], room)
                                      : std::span<const TokenId>());
        }
        head_->collect(
            {*spans_, enqueued.level, enqueued.rows, enqueued.sequences, sets, sizes,
             std::span<const std::int32_t>(left_).subspan(enqueued.downloads, enqueued.download_count)});
    }
    num_calls_ = 0;
}

/// Returns the equivalent of BeamExpansion::rerank() for a tree's pool, without the destination.
kernels::RerankOp TreeGrowth::rerank_op(const GrowingTree& tree) const {
    kernels::RerankOp op;
    op.candidates = tree.proposed;
    op.by_score = tree.job->tree.order == TreeOrder::fr;
    op.pool_tokens = pool_.as<std::int32_t>() + tree.pool;
    op.pool_logprobs = pool_.as<float>() + cells_ + tree.pool;
    op.pool_scores = pool_.as<float>() + 2 * cells_ + tree.pool;
    op.pool_parents = pool_.as<std::int32_t>() + 3 * cells_ + tree.pool;
    op.sampled = sampled_ != nullptr;
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
    std::vector<kernels::RerankOp> ops;
    for (const GrowingTree& tree : trees)
        step.aim(ops.emplace_back(rerank_op(tree)), tree.job->tree_index, tree.place);
    rows_.device().rerank(ops);
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
        pool += numel(rows_of(tree.widths), topk_);
        copies_.push_back(
            {tree.input, width, nullptr, 1, width, roots_.as<float>() + numel(tree.place, width), width});
    }
    if (head_->reads_inputs()) rows_.device().copy_rows(copies_);
}

/// Enqueues the rows of the nodes that the previous level selected.
Status TreeGrowth::enqueue_rows(DraftContext& context, std::span<GrowingTree* const> active, int level,
                                int rows) {
    LevelRows::Level enqueued{context, *spans_, level, rows, active, head_->reads_inputs()};
    if (level > 0) {
        enqueued.tokens = tokens_.as<std::int32_t>();
        enqueued.parents = parents_.as<std::int32_t>();
        enqueued.ancestor_slots = ancestor_slots(level - 1);
    }
    return rows_.enqueue(enqueued,
                         [&](const float* inputs) { begin_head(context, active, level, rows, inputs); });
}

/// Begins the head's call. The rows of the level are computed later.
void TreeGrowth::begin_head(DraftContext& context, std::span<GrowingTree* const> active, int level, int rows,
                            const float* inputs) {
    if (calls_.size() == num_calls_) calls_.emplace_back();
    Call& enqueued = calls_[num_calls_++];
    enqueued.level = level;
    enqueued.rows = rows;
    enqueued.downloads = download_first_[level];
    enqueued.download_count = download_first_[static_cast<std::size_t>(level) + 1] - enqueued.downloads;
    enqueued.sequences.clear();
    for (const GrowingTree* tree : active) {
        const std::size_t at = set_at(tree->place, level);
        DeviceSequence& one = enqueued.sequences.emplace_back();
        one = {tree->job->head_state, tree->place, tree->first_row, rows_at(*tree, level)};
        if (!wants_sets_) continue;
        one.set = d_sets_.as<TokenId>() + set_first_[at];
        one.set_size = d_left_.as<std::int32_t>() + at;
    }
    DeviceLevel call = call_of(context, enqueued);
    if (head_->reads_inputs()) call.inputs = inputs;
    head_->begin(call);
}

DeviceLevel TreeGrowth::call_of(DraftContext& context, const Call& enqueued) {
    DeviceLevel call{rows_.device(), context.phases, *spans_,           enqueued.level,
                     enqueued.rows,  topk_,          enqueued.sequences};
    call.downloads = d_left_.as<std::int32_t>() + enqueued.downloads;
    call.sets_requested = sets_requested_;
    call.ids = best_.as<std::int32_t>();
    call.logits = logits_.as<float>();
    call.sums = sums_.as<float>();
    return call;
}

void TreeGrowth::enqueue_head(DraftContext& context, int rows) {
    DeviceLevel call = call_of(context, calls_[num_calls_ - 1]);
    if (sampled_ != nullptr) {
        const int at = left_at(call.level);
        call.support_logits = support_row(at);
        call.support_stride = columns_.stride;
        call.temperature = sampled_->temperature;
        if (columns_.own) {
            call.support_tokens = support_tokens(at);
            call.support_sizes = d_support_sizes_.as<std::int32_t>() + at;
        }
    }
    call.x = rows_.enqueue_head_rows(rows);
    head_->enqueue(call);
    names_ = call.tokens;
}

/// Enqueues the level's candidates and the next level's nodes. Trees that end here are removed from `active`.
void TreeGrowth::propose(DraftContext& context, std::vector<GrowingTree*>& active, int level, int rows) {
    enqueue_head(context, rows);
    if (sampled_ != nullptr) sample(context, active, level);
    DeviceSpans::Scope enqueued(*spans_, context.phases, Phase::topk, level, rows,
                                numel(rows, topk_) * (sizeof(float) + sizeof(std::int32_t)));
    int next_node = 0, next_row = 0;
    beams_.clear();
    for (GrowingTree* tree : active) {
        tree->job->rows_per_call.push_back(rows_at(*tree, level));
        const bool goes_on = level < tree->job->tree.depth;
        beams_.push_back(extend(*tree, level, goes_on, next_node));
        tree->first_node = next_node;
        tree->first_row = next_row;
        if (!goes_on) continue;
        tree->slots += level == 0 ? 0 : tree->nodes;
        tree->nodes = nodes_at(*tree, level + 1);
        next_node += tree->nodes;
        next_row += rows_at(*tree, level + 1);
    }
    rows_.device().beam(beams_);
    std::erase_if(active, [&](const GrowingTree* tree) { return level >= tree->job->tree.depth; });
}

/// Returns the op that appends the level's candidates to the tree's pool. If `goes_on`, the next level's
/// nodes start at `next_first`.
kernels::BeamOp TreeGrowth::extend(GrowingTree& tree, int level, bool goes_on, int next_first) {
    const int nodes = tree.nodes;
    const bool drawn = sampled_ != nullptr;
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
        op.next_first_row = first_sampled_row(level + 1) + next_first;
    }
    op.row_indices = places_.as<std::int32_t>() + numel(tree.place, kernels::max_topk);
    op.first_index = tree.proposed;
    op.keep = goes_on ? nodes_at(tree, level + 1) : 0;
    if (!choices_first_.empty()) {
        op.static_mask = d_choices_.as<std::int32_t>() + choices_first_[set_at(tree.place, level)];
        op.static_next = op.static_mask + numel(nodes, topk_);
    }
    op.first_row = tree.first_node;
    op.first_slot = tree.free_slot + tree.slots + (level == 0 ? 0 : nodes);
    op.scores = scores_.as<float>() + numel(tree.place, kernels::max_topk);
    op.next_tokens = tokens_.as<std::int32_t>() + next_first;
    op.next_rows = parents_.as<std::int32_t>() + next_first;
    // A node of level l has l slots: its own and those of its ancestors below the root.
    op.ancestor_slots = level == 0 ? nullptr : ancestor_slots(level - 1) + numel(tree.first_node, level);
    op.next_ancestor_slots = ancestor_slots(level) + numel(next_first, level + 1);
    tree.proposed += nodes * topk_;
    return op;
}

}  // namespace draftscope
