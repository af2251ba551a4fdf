#pragma once

#include <algorithm>
#include <span>

#include "base/numel.h"
#include "engine/draft/drafter.h"
#include "engine/transformer/decoder_layer.h"
#include "engine/transformer/kv_cache.h"

/// What the EAGLE drafter keeps for a sequence.
namespace draftscope {

/// KV cache of the verified slots. Rows that a tree writes after them are never committed, because their
/// inputs are the drafter's own predictions.
struct EagleState final : DrafterState {
    /// `slots`: with `keeps`, the most slots that the state can process.
    EagleState(int slots, bool keeps, const LayerShape& shape, kernels::KvType type,
               kernels::Backend& backend)
        : cache(1, slots, shape.kv_width(), type, backend),
          num_rows(keeps ? slots : 1),
          keeps_slots(keeps),
          hidden(shape.hidden) {}

    KvCache cache;
    int num_rows = 1;          ///< rows of `inputs` and `outputs`
    bool keeps_slots = false;  ///< rows are those of all slots; else the row is that of the last slot
    int hidden = 0;            ///< d
    int known = 0;             ///< slots whose keys and values the cache holds; at least its length
    // Of the job's new slots:
    int processed = 0;  ///< number that need no pass any more
    int pass_end = 0;   ///< those from `processed` to this one are in the pass that is being enqueued
    kernels::DeviceBuffer inputs;   ///< [num_rows, 2d]
    kernels::DeviceBuffer outputs;  ///< [num_rows, d]; that of the last slot gives the root's candidates

    /// Returns false if out of memory.
    bool reserve(kernels::Backend& backend) {
        const std::size_t bytes = numel(num_rows, hidden) * sizeof(float);
        return inputs.reserve(backend.memory(), 2 * bytes) && outputs.reserve(backend.memory(), bytes);
    }
    int row_of(int slot) const { return keeps_slots ? slot : 0; }
    float* input(int slot) const { return inputs.as<float>() + numel(row_of(slot), 2 * hidden); }
    float* output(int slot) const { return outputs.as<float>() + numel(row_of(slot), hidden); }
    int pass_rows() const { return pass_end - processed; }
    /// Commits the slots of the pass.
    void commit_pass() {
        cache.commit(pass_rows());
        processed = pass_end;
        known = keeps_slots ? std::max(known, cache.length()) : cache.length();
    }
    /// Begins a job of `new_slots` slots. Takes the first ones that were processed before.
    void begin(int new_slots) {
        processed = pass_end = std::clamp(known - cache.length(), 0, new_slots);
        cache.commit(processed);
    }
    /// Makes room for `rows` rows after the known slots.
    void ensure_free(int rows) {
        const int length = cache.length();
        cache.truncate(std::max(known, length));
        cache.ensure_free(rows);
        cache.truncate(length);
    }
};

inline EagleState& state_for(const DraftJob& job) {
    return static_cast<EagleState&>(*job.state);
}

}  // namespace draftscope
