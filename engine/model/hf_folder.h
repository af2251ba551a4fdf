#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "engine/model/json_file.h"
#include "engine/model/model_config.h"
#include "engine/model/model_file.h"
#include "engine/model/tokenizer.h"

/// Model folders as they are published on model hubs: config.json, weights in one or several safetensors
/// files, tokenizer.json, and optionally tokenizer_config.json, chat_template.jinja, generation_config.json.
namespace draftscope {

/// The whole folder.
Result<ModelFile> open_hf_folder(const std::string& folder);

/// config.json of a folder. `tied` is what it says about the LM head, if anything.
struct HfConfig {
    ModelConfig config;
    std::optional<bool> tied;
};
Result<HfConfig> read_hf_config(const JsonFile& file);

/// The weights under GGUF names, each checked against the config; decides config.tied_head.
Result<std::unique_ptr<WeightSource>> open_hf_weights(const std::string& folder, HfConfig& hf);

/// tokenizer.json with the ends of text that the folder's other files name. `config` is config.json.
Result<TokenizerSpec> read_hf_tokenizer(const std::string& folder, const JsonFile& config);

}  // namespace draftscope
