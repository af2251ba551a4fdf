#include "engine/draft/eagle_rows.h"

namespace draftscope {

bool EagleRows::make_room(int, int nodes) {
    return (device().is_host() || model_.device_embeddings() != nullptr) && model_.layer().make_room(nodes);
}

void EagleRows::enqueue_embeddings(const std::int32_t* tokens, int rows) {
    EagleLayer& layer = model_.layer();
    const int d = hidden();
    if (device().is_host())
        return model_.embed({tokens, static_cast<std::size_t>(rows)},
                            Rows<float>(layer.inputs(), rows, d, 2 * d));
    device().copy_rows({model_.device_embeddings(), d, tokens, rows, d, layer.inputs(), 2 * d});
}

Status EagleRows::enqueue(const Level& level, FunctionRef<void(const float*)> inputs_known) {
    EagleLayer& layer = model_.layer();
    const int d = hidden(), rows = level.rows;
    if (level.level == 0) {  // the catch-up ran the layer over the roots
        roots_.clear();
        for (const GrowingTree* tree : level.trees)
            roots_.push_back(
                {tree->output, d, nullptr, 1, d, layer.outputs() + std::ptrdiff_t{tree->first_row} * d, d});
        device().copy_rows(roots_);
        return {};
    }
    const int above = level.level - 1;
    batch_.clear();
    slots_.assign(level.level, 0);  // level.ancestor_slots replaces them on the device
    for (const GrowingTree* tree : level.trees)
        for (int b = 0; b < tree->nodes; ++b)
            batch_.add_row(*tree->cache, tree->free_slot + tree->slots + b, tree->committed + above,
                           tree->committed, slots_);
    DeviceSpans::Scope enqueued(level.spans, level.context.phases, Phase::backbone, level.level, rows,
                                pass_bytes(batch_));
    enqueue_embeddings(level.tokens, rows);
    device().copy_rows({layer.outputs(), d, level.parents, rows, d, layer.inputs() + d, 2 * d});
    inputs_known(layer.inputs());
    // Consecutive levels use different arrays of ancestor slots.
    return layer.enqueue(batch_, level.ancestor_slots, above % 2);
}

}  // namespace draftscope
