#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "engine/model/chat_template.h"
#include "engine/model/model_config.h"
#include "engine/model/tokenizer.h"
#include "engine/model/weight_source.h"

namespace draftscope {

/// Everything read from a target's files, before any weight is packed. Tensors carry GGUF names
/// (token_embd.weight, blk.N.attn_q.weight, ...), whatever the file format.
struct ModelFile {
    ModelConfig config;
    std::unique_ptr<WeightSource> weights;
    std::unique_ptr<Tokenizer> tokenizer;
    ChatTemplate chat;         ///< raw, with its problem() set, when the file's template is not recognised
    std::string quantisation;  ///< dominant tensor type, "Q4_1"
    bool quantised = false;    ///< decides --precision auto
};

/// Opens a target by path: a GGUF file, or a folder with config.json, safetensors and tokenizer.json; or
/// makes "synthetic:NAME". Checks every tensor's shape against the config.
Result<ModelFile> open_model_file(const std::string& path);

/// Opens a safetensors file with its tensors under their own names (drafters, head artefacts).
Result<std::unique_ptr<WeightSource>> open_safetensors(const std::string& path);

}  // namespace draftscope
