#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "base/json_file.h"
#include "base/notes.h"

namespace draftscope {

/// What a reader does with a field of a config.
enum class KeyUse {
    read,       ///< decides what is computed, or is checked
    no_effect,  ///< of training, text generation or another program
    fixed,      ///< refused unless its value is one of ConfigKey::values
};

/// A field that published writers write.
struct ConfigKey {
    std::string_view name;  ///< a final '*' matches any end
    KeyUse use = KeyUse::read;
    std::string_view values = {};  ///< JSON values, "false, 0"
};

/// Makes a table of names with blanks between. A fixed name has its JSON values: "scale=0,1". The texts must
/// outlive the table.
std::vector<ConfigKey> make_keys(std::string_view read, std::string_view no_effect, std::string_view fixed);

/// Compares the fields of an object with a table, and with those that transformers writes into any config.
/// Refuses a fixed field with another value. One note names the fields that neither table has; a null field
/// counts as absent.
Status check_keys(const JsonFile& file, std::span<const ConfigKey> table, Notes& notes);

/// The same for `object`, whose fields a message calls "FILE: PREFIX...".
Status check_keys(const std::string& file, std::string_view prefix, const nlohmann::json& object,
                  std::span<const ConfigKey> table, Notes& notes);

/// The fields of any transformers config, which have no effect here, and the fixed ones among them.
extern const std::vector<ConfigKey> transformers_keys;
/// The fields of the config.json of a target.
extern const std::vector<ConfigKey> target_keys;
/// The metadata of GGUF files behind "ARCHITECTURE.", "tokenizer." and "general.".
extern const std::vector<ConfigKey> gguf_model_keys;
extern const std::vector<ConfigKey> gguf_tokenizer_keys;
extern const std::vector<ConfigKey> gguf_general_keys;

}  // namespace draftscope
