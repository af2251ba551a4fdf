#pragma once

#include <memory>
#include <string>

#include "base/notes.h"
#include "base/result.h"
#include "engine/chat_template/chat_template.h"
#include "engine/formats/model_config.h"
#include "engine/formats/weight_source.h"
#include "engine/tokenizer/tokenizer.h"

namespace draftscope {

/// The contents of a target's files before packing. Tensors have GGUF names (token_embd.weight,
/// blk.N.attn_q.weight, ...) in every file format.
struct ModelFile {
    ModelConfig config;
    std::unique_ptr<WeightSource> weights;
    std::unique_ptr<Tokenizer> tokenizer;
    ChatTemplate chat;         ///< raw, with problem() set, if the file's template is unusable
    std::string quantisation;  ///< dominant tensor type, "Q4_1"
    bool quantised = false;    ///< whether it is smaller than 16 bits per weight
    Notes notes;               ///< what was chosen or odd in the files

    /// Whether most weights have four bits, which int4 holds as they are stored.
    bool has_four_bits() const;
    /// Chooses --precision auto of the CPU (docs/decisions/0042). It is int4 for weights mostly in four bits,
    /// int8 for other quantised ones, else bf16.
    kernels::Precision auto_precision() const;
    /// Returns the precision that a tensor is packed in. At int4, a file mostly in four bits keeps other
    /// tensors at int8.
    kernels::Precision packed_precision(kernels::Precision precision, const TensorInfo& tensor) const;
};

/// Opens a target: a GGUF file, a folder with config.json, safetensors and tokenizer.json, or
/// "synthetic:NAME". Checks every tensor's shape against the config.
Result<ModelFile> open_model_file(const std::string& path);

/// Opens a safetensors file; tensors keep their own names (drafters, head artefacts).
Result<std::unique_ptr<WeightSource>> open_safetensors(const std::string& path);

}  // namespace draftscope
