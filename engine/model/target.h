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
#include "engine/model/ancestor_mask.h"
#include "engine/model/device_logits.h"
#include "engine/model/kv_cache.h"
#include "engine/model/model_config.h"
#include "engine/model/model_file.h"
#include "engine/model/weight_loader.h"
#include "kernels/matrix.h"
#include "kernels/rope.h"

namespace draftscope {

using ProgressFn = std::function<void(double fraction, const std::string& what)>;

/// Rows of one sequence in a target forward. Row i sits at logical position cache->length() + depth[i] and
/// sees the committed prefix plus its ancestors in `mask`; without a mask the rows are a chain (depth i, all
/// earlier rows).
struct SequenceRows {
    KvCache* cache = nullptr;
    std::span<const TokenId> tokens;
    std::span<const int> depths;
    const AncestorMask* mask = nullptr;
};

/// What a forward leaves behind; rows of all sequences in order. Buffers are reused between calls.
struct ForwardOutput {
    int rows = 0;
    std::vector<float> hidden;      ///< [rows, d], after the final norm: EAGLE's feature
    std::vector<float> aux;         ///< [rows, 3d] when asked for: EAGLE-3's three residual-stream snapshots
    std::vector<float> logits;      ///< [logit_rows, V], unless they stayed where they are:
    DeviceLogits* there = nullptr;  ///< valid until the target's next forward; null = in `logits`
    bool answered = false;    ///< the request's question is; its rows are `there`, or were never written
    RowAnswers answers;       ///< to the request's question, when answered
    std::uint64_t bytes = 0;  ///< weights, keys and values this call had to read
};

/// A forward of trees that a device grows, rows in the order of the step's trees.
struct TreesRequest {
    std::span<KvCache* const> caches;  ///< of each tree's sequence
    std::span<const int> aux_layers;
    const RowQuestion* question = nullptr;
    bool accept = false;  ///< follow the choices there, and move the keys and values of the path together
};

struct ForwardRequest {
    std::span<const SequenceRows> sequences;
    std::span<const int> aux_layers;  ///< residual stream entering these 0-based layers; empty = none
    /// Rows (over all sequences) that need logits; `all_logits` ignores the list.
    std::span<const int> logit_rows;
    bool all_logits = false;
    /// With all_logits: what is wanted to know of them. Where they are made on a device that can answer it,
    /// they stay there; where one pass over the LM head answers it (HostAnswers), they are not made; else
    /// they come as ever.
    const RowQuestion* question = nullptr;
};

/// A llama-family transformer with its packed weights. Immutable after load apart from scratch: one forward
/// at a time.
class Target {
  public:
    /// `precision` absent = auto (int8 for a quantised file, else bf16).
    static Result<std::unique_ptr<Target>> load(const std::string& path, kernels::Exec& exec,
                                                std::optional<kernels::Precision> precision,
                                                const ProgressFn& progress = {},
                                                const WeightCacheOptions& cache = {});
    /// Takes any weights under GGUF names (random models in tests, synthetic targets). The tokenizer may be
    /// null.
    static Result<std::unique_ptr<Target>> build(ModelFile file, kernels::Exec& exec,
                                                 kernels::Precision precision,
                                                 const ProgressFn& progress = {},
                                                 const WeightCacheOptions& cache = {});
    ~Target();

    const ModelConfig& config() const;
    const Tokenizer* tokenizer() const;
    const ChatTemplate& chat() const;
    kernels::Precision precision() const;
    const std::string& path() const;
    const LoadReport& load_report() const;
    /// [V, d]; shared with draft heads.
    const kernels::Matrix& lm_head() const;
    /// Token embeddings as f32 rows, out is [tokens, d]: the values of the file, dequantised, also where the
    /// LM head is the same tensor packed at another precision. Ids outside the vocabulary are a programming
    /// error.
    void embed(std::span<const TokenId> tokens, Rows<float> out) const;
    const kernels::RopeTable& rope() const;
    KvCache make_cache(int slots) const;
    /// Embeddings of all tokens [V, d] on the device that the weights lie on; null without one, or room on
    /// it. The caller holds Device::busy().
    const float* embeddings_there() const;
    std::size_t weight_bytes() const;  ///< read by one forward, LM head included

    /// Appends rows behind each cache's committed slots (no commit). Fails, with the caches untouched, when a
    /// cache has too few free slots or a position passes the context. Allocates only while buffers grow.
    Status forward(kernels::Exec& exec, const ForwardRequest& request, ForwardOutput& out);
    /// Runs `tokens` through the cache in fixed chunks (`prefill_chunk`, on a device its own) and commits
    /// them. hidden and aux cover every token; logits only the last one. When cancelled, the chunks done so
    /// far stay committed.
    Status prefill(kernels::Exec& exec, KvCache& cache, std::span<const TokenId> tokens,
                   std::span<const int> aux_layers, ForwardOutput& out,
                   const std::function<bool()>& cancelled = {});
    static constexpr int prefill_chunk = 128;
    /// On a device, where few rows leave its tensor cores idle; our default, not measured.
    static constexpr int device_prefill_chunk = 512;

    /// Asks for a forward over trees that the device has by then; see forward(). Nothing is committed here.
    /// The caller holds Device::busy(), asks for the rest of its round, waits, and calls collect_trees().
    /// What has to be read for it, in bytes.
    Result<std::uint64_t> ask_trees(const TreesRequest& request, TreeStep& step);
    /// What forward() leaves, after the wait; features stay there.
    void collect_trees(const TreeStep& step, ForwardOutput& out);
    /// Features of the latest ask_trees(): hidden [rows, d], or with aux layers [rows, layers * d].
    const float* features_there(bool hidden) const;

  private:
    struct Impl;
    explicit Target(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace draftscope
