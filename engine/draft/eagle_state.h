#pragma once

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "base/numel.h"
#include "engine/draft/candidate_sampler.h"
#include "engine/draft/drafter.h"
#include "engine/transformer/decoder_layer.h"
#include "engine/transformer/kv_cache.h"
#include "engine/tree/expansion.h"
#include "kernels/device.h"

/// What the EAGLE drafter keeps for a sequence, and for the trees of a round.
namespace draftscope {

/// KV cache of the verified slots. Rows that an expansion writes after them are never committed, because
/// their inputs are the drafter's own predictions.
struct EagleState final : DrafterState {
    EagleState(int slots, const LayerShape& shape, kernels::KvType type, kernels::Device* device)
        : cache(1, slots, shape.kv_width(), type, device), input(2 * shape.hidden), output(shape.hidden) {}
    KvCache cache;
    std::vector<float> input;   ///< [2d] of the last verified slot
    std::vector<float> output;  ///< [d] of the last verified slot; gives the root's candidates
    /// The same on a device, in place of both.
    kernels::DeviceBuffer device_output, device_input;

    // If the state can be rewound (Drafter::enable_rewind): everything it has processed.
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
        const std::size_t last = cache.length() - 1;
        std::copy_n(inputs.data() + last * input.size(), input.size(), input.data());
        std::copy_n(outputs.data() + last * output.size(), output.size(), output.data());
        return count;
    }
};

inline EagleState& state_for(const DraftJob& job) {
    return static_cast<EagleState&>(*job.state);
}

/// A row buffer that only grows.
class RowBuffer {
  public:
    Rows<float> rows(int count, int cols) {
        const std::size_t size = numel(count, cols);
        if (data_.size() < size) data_.resize(size);
        return {data_.data(), count, cols};
    }
    std::span<const float> row(int index, int cols) const {
        return {data_.data() + row_offset(index, cols), static_cast<std::size_t>(cols)};
    }
    void swap(RowBuffer& other) { data_.swap(other.data_); }

  private:
    std::vector<float> data_;
};

inline void copy_row(std::span<const float> from, std::span<float> to) {
    std::memcpy(to.data(), from.data(), from.size() * sizeof(float));
}

/// A job's tree during expansion. Its rows take the slots after the committed ones, in the order of their
/// passes.
struct EagleExpansion {
    void reset(const DraftContext& context, DraftJob& job_in) {
        job = &job_in;
        begin_tree(beam, context, job_in);
        committed = state_for(job_in).cache.length();
        free_slot = state_for(job_in).free_slot();
        slots_used = first_row = parents_first = 0;
        ancestor_slots.clear();
    }

    DraftJob* job = nullptr;
    BeamExpansion beam;
    int committed = 0;                ///< number of committed slots
    int free_slot = 0;                ///< first slot for tree rows
    int slots_used = 0;               ///< tree rows written
    int first_row = 0;                ///< this job's first row in the latest pass
    int parents_first = 0;            ///< this job's first row in the previous pass
    std::vector<int> ancestor_slots;  ///< [rows of the latest pass, level]: slots of each row's tree
                                      ///< ancestors and of the row
    std::vector<int> next_ancestor_slots;

    int rows() const { return static_cast<int>(beam.beam().size()); }
    bool expands(int level) const { return level <= job->tree.depth && !beam.beam().empty(); }
};

}  // namespace draftscope
