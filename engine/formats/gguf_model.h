#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/notes.h"
#include "base/result.h"
#include "engine/formats/architecture.h"
#include "engine/formats/gguf.h"
#include "engine/formats/model_config.h"
#include "engine/tokenizer/tokenizer.h"

namespace draftscope {

/// Returns the family of a file; an unknown family is an error that lists the known ones.
Result<const Architecture*> gguf_architecture(const GgufFile& file);

/// Reads the config from the metadata and checks every tensor against it. A missing tensor, a wrong shape and
/// a tensor that the computation would ignore are errors.
Result<ModelConfig> read_gguf_config(const GgufFile& file, const Architecture& architecture, Notes& notes);

/// Reads the tokenizer.ggml.* metadata.
Result<TokenizerSpec> read_gguf_tokenizer(const GgufFile& file, Notes& notes);

/// Returns the tensors of a GGUF file as f32 rows. If `permuted_qk`, the file stores q and k rows for
/// rotation of adjacent pairs (architecture llama); they are read in half-split order.
std::unique_ptr<WeightSource> make_gguf_weights(GgufFile file, const ModelConfig& config, bool permuted_qk);

/// Returns the stored index of a half-split projection's row if the file interleaves the halves of each head:
/// (head, half s, j) is stored as (head, 2j + s).
inline std::int64_t interleaved_row(std::int64_t row, int head_dim) {
    const std::int64_t in_head = row % head_dim;
    const std::int64_t half = head_dim / 2;
    return row - in_head + 2 * (in_head % half) + in_head / half;
}

}  // namespace draftscope
