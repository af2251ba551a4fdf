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
    bool quantised = false;    ///< decides --precision auto
    Notes notes;               ///< what was chosen or odd in the files
};

/// Opens a target: a GGUF file, a folder with config.json, safetensors and tokenizer.json, or
/// "synthetic:NAME". Checks every tensor's shape against the config.
Result<ModelFile> open_model_file(const std::string& path);

/// Opens a safetensors file; tensors keep their own names (drafters, head artefacts).
Result<std::unique_ptr<WeightSource>> open_safetensors(const std::string& path);

/// Opens a PyTorch checkpoint (.bin, .pt): the tensors of a saved state dict, memory-mapped. Its pickle is
/// read as data; everything except tensors, numbers, text and their containers is refused, and no code of the
/// file is run. A saved list of numbers becomes the tensor `ids`.
Result<std::unique_ptr<WeightSource>> open_torch_file(const std::string& path);

/// Opens a safetensors file or a PyTorch checkpoint, chosen by its first bytes.
Result<std::unique_ptr<WeightSource>> open_tensor_file(const std::string& path);

}  // namespace draftscope
