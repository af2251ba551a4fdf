#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/spans.h"
#include "engine/formats/model_config.h"
#include "engine/formats/model_file.h"
#include "engine/transformer/kv_cache.h"
#include "engine/transformer/target_pass.h"
#include "engine/tree/ancestor_mask.h"
#include "engine/weights/weight_loader.h"
#include "kernels/embedding_table.h"
#include "kernels/matrix.h"
#include "kernels/rope.h"

namespace draftscope {

using ProgressFn = std::function<void(double fraction, const std::string& what)>;

/// The rows of one sequence in a target forward pass. Row i has logical position cache->length() + depths[i]
/// and attends to the committed prefix and its ancestors in `mask`. Without a mask the rows are a chain (row
/// i has depth i).
struct SequenceTokens {
    KvCache* cache = nullptr;
    std::span<const TokenId> tokens;
    std::span<const int> depths;
    const AncestorMask* mask = nullptr;
};

/// The outputs of a forward pass; rows of all sequences in order. Buffers are reused between calls.
struct ForwardOutput {
    int rows = 0;
    std::vector<float> hidden;  ///< [rows, d], after the final norm: EAGLE's feature
    std::vector<float> aux;     ///< [rows, 3d] if requested: EAGLE-3's three residual-stream snapshots
    std::vector<float> logits;  ///< [logit_rows, V]
    std::uint64_t bytes = 0;    ///< weights, keys and values read by this call
};

struct ForwardRequest {
    std::span<const SequenceTokens> sequences;
    /// 0-based layers whose input residual stream is stored, the number of layers for the last one's output.
    std::span<const int> aux_layers;
    /// Rows (over all sequences) that need logits; ignored if `all_logits` is set.
    std::span<const int> logit_rows;
    bool all_logits = false;
};

/// A llama-family transformer with packed weights. Immutable after load except for scratch memory; supports
/// one forward pass at a time.
class Target {
  public:
    /// Loads a target. `precision` defaults to ModelFile::auto_precision(); a device uses bf16, or fp16 for
    /// fp16 checkpoints. `context` limits the model's context; 0 = no limit.
    static Result<std::unique_ptr<Target>> load(const std::string& path, kernels::Backend& backend,
                                                std::optional<kernels::Precision> precision,
                                                const ProgressFn& progress = {},
                                                const WeightCacheOptions& cache = {}, int context = 0);
    /// Builds a target from weights under GGUF names (random models in tests, synthetic targets). The
    /// tokenizer may be null.
    static Result<std::unique_ptr<Target>> build(ModelFile file, kernels::Backend& backend,
                                                 kernels::Precision precision,
                                                 const ProgressFn& progress = {},
                                                 const WeightCacheOptions& cache = {});
    ~Target();

    const ModelConfig& config() const;
    const Tokenizer* tokenizer() const;
    const ChatTemplate& chat() const;
    const Notes& notes() const;  ///< of the model's files
    kernels::Precision precision() const;
    const std::string& path() const;
    const LoadReport& load_report() const;
    /// [V, d]; shared with draft heads.
    const kernels::Matrix& lm_head() const;
    /// Writes token embeddings as f32 rows; `out` is [tokens, d]. Values come dequantised from the file even
    /// if the LM head shares the tensor at another precision. Ids must be inside the vocabulary.
    void embed(std::span<const TokenId> tokens, Rows<float> out) const;
    /// The same values as an operand of ops.
    kernels::EmbeddingTable& embeddings() const;
    const kernels::RopeTable& rope() const;
    // What a pass of another decoder needs:
    const LayerShape& shape() const;
    std::span<const DecoderLayer> layers() const;
    std::span<const float> output_norm() const;
    /// The backend that holds the weights and runs every pass.
    kernels::Backend& backend() const;
    KvCache make_cache(int slots) const;
    std::size_t weight_bytes() const;  ///< bytes read by one forward pass, LM head included

    /// Runs rows after each cache's committed slots without committing them. If a cache has too few free
    /// slots or a position exceeds the context, returns an error and leaves the caches unchanged. Allocates
    /// only while buffers grow.
    Status forward(const ForwardRequest& request, ForwardOutput& out);
    /// Runs `tokens` in chunks of BackendLimits::prefill_rows and commits them. `hidden`
    /// and `aux` cover every token, `logits` only the last. If cancelled, completed chunks stay committed.
    Status prefill(KvCache& cache, std::span<const TokenId> tokens, std::span<const int> aux_layers,
                   ForwardOutput& out, const std::function<bool()>& cancelled = {});

    /// Enqueues a pass; see forward(). Commits nothing. The caller holds Backend::submit_mutex(). Returns the
    /// bytes to be read.
    Result<std::uint64_t> enqueue(const TreePass& pass);
    /// Uploads the layout of a pass. Call it before the trees are drafted, so that a device does not wait for
    /// a transfer between drafts and verification.
    Status upload_layout(const TreePass& pass);

  private:
    struct Impl;
    explicit Target(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace draftscope
