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

/// Returns the tensors of a GGUF file. If `permuted_qk`, the file stores q and k rows for rotation of
/// adjacent pairs (architecture llama) in heads of `head_dim`; they are read in half-split order.
std::unique_ptr<WeightSource> make_gguf_weights(GgufFile file, int head_dim, bool permuted_qk);

}  // namespace draftscope
