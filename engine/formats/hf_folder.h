#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/json_file.h"
#include "base/result.h"
#include "engine/formats/model_config.h"
#include "engine/formats/model_file.h"
#include "engine/formats/tensor_file.h"
#include "engine/tokenizer/tokenizer.h"

/// Model folders of model hubs: config.json, one or several safetensors files, tokenizer.json.
/// tokenizer_config.json, chat_template.jinja and generation_config.json are optional.
namespace draftscope {

/// Opens a complete folder.
Result<ModelFile> open_hf_folder(const std::string& folder);

/// A parsed config.json. `tied` is its tie_word_embeddings, if present.
struct HfConfig {
    ModelConfig config;
    std::optional<bool> tied;
};
Result<HfConfig> read_hf_config(const JsonFile& file, Notes& notes);

/// Opens the weights under GGUF names, checks each against the config and sets config.tied_head.
Result<std::unique_ptr<TensorFile>> open_hf_weights(const std::string& folder, HfConfig& hf, Notes& notes);

/// Returns what a folder without a model's files holds instead, as "; ...": a GGUF file, a LoRA adapter,
/// PyTorch weights. "" = nothing known.
std::string other_contents(const std::string& folder);

/// Reads tokenizer.json and the end-of-text tokens that the folder's other files name. `config` is
/// config.json.
Result<TokenizerSpec> read_hf_tokenizer(const std::string& folder, const JsonFile& config);

}  // namespace draftscope
