#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "engine/model/architecture.h"
#include "engine/model/gguf.h"
#include "engine/model/model_config.h"
#include "engine/model/tokenizer.h"

namespace draftscope {

/// The family of a file; an unknown one is an error that names it and lists the known ones.
Result<const Architecture*> gguf_architecture(const GgufFile& file);

/// Shapes and constants from the metadata, and every tensor of the model checked against them: present, of
/// the right shape, and none that this program would leave out of the computation.
Result<ModelConfig> read_gguf_config(const GgufFile& file, const Architecture& architecture);

/// tokenizer.ggml.*, as it stands in the file.
Result<TokenizerSpec> read_gguf_tokenizer(const GgufFile& file);

}  // namespace draftscope
