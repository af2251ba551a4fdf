#pragma once

#include <vector>

#include "engine/draft/eagle_layer.h"
#include "engine/draft/tree_growth.h"

namespace draftscope {

/// Computes the rows of trees with a backbone: its layers over the nodes' embeddings and, for EAGLE, their
/// parents' rows.
class EagleRows : public LevelRows {
  public:
    /// `model` must outlive this object.
    explicit EagleRows(Backbone& model) : model_(model) {}
    int hidden() const override { return model_.shape().hidden; }
    /// The layer's memory is reserved with that of the catch-up.
    bool reserve(RoundStep& step, int, int) override { return model_.embeddings().load(*step.backend); }
    Status enqueue(const Level& level, FunctionRef<void(const float*)> inputs_known) override;
    kernels::Activations enqueue_head_rows(int rows) override {
        return model_.layer().enqueue_head_rows(rows);
    }
    /// Uploads the planned layouts of a round's passes: the levels of `trees` and the last catch-up pass.
    Status upload_layouts(std::span<const GrowingTree> trees, const DecoderBatch& catch_up);
    /// Enqueues the embeddings of tokens in device memory, into the first half of the layer's inputs.
    void enqueue_embeddings(const std::int32_t* tokens, int rows);
    /// Returns the bytes that a pass over `batch` reads.
    std::uint64_t pass_bytes(const DecoderBatch& batch) const {
        const std::size_t value = kernels::bytes_per_value(model_.kv_type());
        return model_.weight_bytes() + model_.layers() * batch.kv_bytes(model_.shape().kv_width(), value);
    }

  private:
    void add_level(const GrowingTree& tree, int level, int slots, int nodes, DecoderBatch& to);

    Backbone& model_;
    DecoderBatch batch_;
    std::vector<DecoderBatch> passes_;  ///< of a round
    std::vector<int> slots_;
};

}  // namespace draftscope
