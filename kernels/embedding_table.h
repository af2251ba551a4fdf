#pragma once

#include <functional>

#include "base/units.h"
#include "kernels/backend.h"

namespace draftscope::kernels {

/// The embeddings of all tokens, f32 [vocab, d]. A device keeps them in its memory; the CPU reads each row
/// from its source.
class EmbeddingTable {
  public:
    /// Writes the embedding of a token, [d].
    using Source = std::function<void(TokenId token, float* out)>;

    EmbeddingTable() = default;
    EmbeddingTable(int vocab, int d, Source source) : vocab_(vocab), d_(d), source_(std::move(source)) {}
    /// Makes the table available to enqueue(), on first use. Returns false if out of memory, which is
    /// requested again only after Backend::clear_out_of_memory(). The caller holds Backend::submit_mutex().
    bool load(Backend& backend);
    /// Enqueues to[i] = embedding of tokens[i], for rows of `stride` values. `tokens` are in the backend's
    /// memory.
    void enqueue(Backend& backend, const std::int32_t* tokens, int rows, float* to,
                 std::int64_t stride) const;
    /// Writes the embedding of a token to host memory, [d].
    void read(TokenId token, float* out) const { source_(token, out); }

  private:
    int vocab_ = 0, d_ = 0;
    Source source_;
    DeviceBuffer on_device_;
    int refused_ = -1;  ///< Backend::oom_epoch() when memory ran out
};

}  // namespace draftscope::kernels
