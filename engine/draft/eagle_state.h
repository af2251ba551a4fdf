#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "engine/draft/drafter.h"
#include "engine/transformer/decoder_layer.h"
#include "engine/transformer/kv_cache.h"
#include "kernels/backend.h"

/// What the EAGLE drafter keeps for a sequence.
namespace draftscope {

/// KV cache of the verified slots. Rows that an expansion writes after them are never committed, because
/// their inputs are the drafter's own predictions.
struct EagleState final : DrafterState {
    EagleState(int slots, const LayerShape& shape, kernels::KvType type, kernels::Backend& backend)
        : cache(1, slots, shape.kv_width(), type, backend), hidden(shape.hidden) {}
    KvCache cache;
    int hidden = 0;  ///< d
    /// Returns false if memory runs out.
    bool reserve(kernels::Backend& backend) {
        const std::size_t bytes = hidden * sizeof(float);
        return input.reserve(backend.memory(), 2 * bytes) && output.reserve(backend.memory(), bytes);
    }
    kernels::DeviceBuffer input;   ///< [2d] of the last verified slot
    kernels::DeviceBuffer output;  ///< [d] of the last verified slot; gives the root's candidates

    // If the state can be rewound (Drafter::enable_rewind), on the CPU only: everything it has processed.
    bool keep_history = false;
    int known = 0;                       ///< slots whose keys and values the cache holds
    std::vector<float> inputs, outputs;  ///< [known, 2d], [known, d]

    /// First slot that a tree may write to.
    int free_slot() const { return std::max(known, cache.length()); }
    void make_room(int rows) {
        const int length = cache.length();
        cache.truncate(free_slot());
        cache.ensure_free(rows);
        cache.truncate(length);
    }
    void remember(std::vector<float>& all, Rows<const float> rows) const {
        for (int r = 0; keep_history && r < rows.rows; ++r)
            all.insert(all.end(), rows.row(r).begin(), rows.row(r).end());
    }
    void commit(int rows) {
        cache.commit(rows);
        if (keep_history) known = cache.length();
    }
    /// Reuses up to `wanted` known slots; returns their number.
    int reuse_known(int wanted) {
        const int count = std::clamp(known - cache.length(), 0, wanted);
        if (count == 0) return 0;
        cache.commit(count);
        const std::size_t last = cache.length() - 1, width = hidden;
        std::copy_n(inputs.data() + last * 2 * width, 2 * width, input.as<float>());
        std::copy_n(outputs.data() + last * width, width, output.as<float>());
        return count;
    }
};

inline EagleState& state_for(const DraftJob& job) {
    return static_cast<EagleState&>(*job.state);
}

}  // namespace draftscope
