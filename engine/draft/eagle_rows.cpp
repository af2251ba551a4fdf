#include "engine/draft/eagle_rows.h"

#include "engine/draft/tree_levels.h"

namespace draftscope {

void EagleRows::enqueue_embeddings(const std::int32_t* tokens, int rows) {
    model_.embeddings().enqueue(model_.layer().device(), tokens, rows, model_.layer().inputs(), 2 * hidden());
}

/// Adds the nodes of a tree's level. `slots`: slots of its earlier levels.
void EagleRows::add_level(const GrowingTree& tree, int level, int slots, int nodes, DecoderBatch& to) {
    slots_.assign(level, 0);  // Level::ancestor_slots replaces them
    for (int b = 0; b < nodes; ++b)
        to.add_row(*tree.cache, tree.free_slot + slots + b, tree.committed + level - 1, tree.committed,
                   slots_);
}

Status EagleRows::upload_layouts(std::span<const GrowingTree> trees, const DecoderBatch& catch_up) {
    std::size_t count = 0;
    const auto next = [&]() -> DecoderBatch& {
        if (passes_.size() == count) passes_.emplace_back();
        passes_[count].clear();
        return passes_[count];
    };
    for (int level = 1;; ++level, ++count) {
        DecoderBatch& batch = next();
        for (const GrowingTree& tree : trees) {
            const TreeSpec& shape = tree.job->tree;
            int slots = 0;
            for (int above = 1; above < level; ++above) slots += width_at(shape, above);
            if (level <= shape.depth) add_level(tree, level, slots, width_at(shape, level), batch);
        }
        if (batch.rows() == 0) break;
    }
    // The levels come first, so that their addresses do not depend on the catch-up.
    next() = catch_up;
    return model_.layer().upload_layouts(std::span(passes_).first(count + 1));
}

Status EagleRows::enqueue(const Level& level, FunctionRef<void(const float*)> inputs_known) {
    EagleLayer& layer = model_.layer();
    kernels::Backend& backend = *level.step.backend;
    const int d = hidden(), rows = level.rows;
    if (level.level == 0) {  // the catch-up ran the layer over the roots
        const auto roots = level.step.memory.host.list<kernels::CopyRowsOp>(level.trees.size());
        for (std::size_t i = 0; i < roots.size(); ++i) {
            const GrowingTree& tree = *level.trees[i];
            roots[i] = {
                .from = tree.output, .count = 1, .cols = d, .to = layer.outputs() + numel(tree.first_row, d)};
        }
        backend.copy_rows(roots);
        return {};
    }
    batch_.clear();
    for (const GrowingTree* tree : level.trees)
        add_level(*tree, level.level, tree->slots, tree->nodes, batch_);
    DeviceSpans::Scope scope(level.step.spans, level.context.phases, Phase::backbone, level.level, rows,
                             pass_bytes(batch_));
    enqueue_embeddings(level.tokens, rows);
    if (layer.reads_hidden())
        backend.copy_rows({.from = layer.outputs(),
                           .from_stride = d,
                           .rows = level.parents,
                           .count = rows,
                           .cols = d,
                           .to = layer.inputs() + d,
                           .to_stride = 2 * d});
    inputs_known(layer.inputs());
    return layer.enqueue(batch_, level.ancestor_slots);
}

}  // namespace draftscope
