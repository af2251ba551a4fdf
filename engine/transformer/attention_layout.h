#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/transformer/decoder_layer.h"
#include "kernels/device_array.h"

namespace draftscope {

/// Where the rows of a pass attend: their caches, slots, positions and ancestors, in the backend's memory.
class AttentionLayout {
  public:
    void set_heads(const kernels::AttentionHeads& heads) { heads_ = heads; }
    const kernels::AttentionHeads& heads() const { return heads_; }
    /// Lists the caches, attention blocks and tiles of a pass on the host.
    void list(const DecoderBatch& batch);
    /// Uploads the layouts of passes that follow in one transfer. Returns false if out of memory.
    bool upload(kernels::Backend& backend, std::span<const DecoderBatch> batches);
    /// Points batch() to the layout of `batch`, the latest of list(). Uploads it unless the latest upload
    /// has it. Returns false if out of memory.
    bool select(kernels::Backend& backend, const DecoderBatch& batch);

    /// The placed rows; the caller may replace arrays.
    kernels::AttentionBatch& batch() { return batch_; }
    const kernels::AttentionBatch& batch() const { return batch_; }
    int blocks() const { return blocks_; }
    /// [tiles, 2]: first row and rows.
    std::span<const std::int32_t> tiles() const { return tiles_; }
    /// Appends what the ops of the pass depend on: sizes and addresses.
    void add_to_key(std::vector<std::int64_t>& key) const;

  private:
    /// The layout of a pass, as uploaded.
    struct Uploaded {
        std::vector<std::int32_t> values;
        const std::int32_t* d_values = nullptr;
    };
    void list_tiles();
    void list_values(const DecoderBatch& batch, std::vector<std::int32_t>& out) const;
    Uploaded& add_layout();
    bool upload_caches(kernels::Backend& backend);
    bool upload_listed(kernels::Backend& backend);

    kernels::AttentionHeads heads_;
    int blocks_ = 0;                           ///< attention blocks of a row, a power of two
    std::vector<const KvCache*> listed_;       ///< caches of the pass
    std::vector<std::int32_t> row_sequences_;  ///< index of each row's sequence
    std::vector<std::int32_t> tiles_;
    std::vector<kernels::KvPlanes> caches_;    ///< [sequences]
    std::vector<kernels::KvPlanes> uploaded_;  ///< contents of d_caches_
    std::vector<Uploaded> layouts_;            ///< of the latest upload; the first num_layouts_ are valid
    std::size_t num_layouts_ = 0;
    std::vector<std::int32_t> values_;  ///< of the pass
    kernels::AttentionBatch batch_;
    kernels::DeviceStruct d_batch_;  ///< the arrays of batch_ except the caches, for each layout
    kernels::DeviceArray<kernels::KvPlanes> d_caches_;
};

}  // namespace draftscope
