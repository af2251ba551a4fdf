#pragma once

#include <span>

#include "engine/formats/config_keys.h"

namespace draftscope {

/// Fields of drafters' config.json, as their published writers write them (docs/FORMATS.md).
std::span<const ConfigKey> eagle_keys();          ///< of a config with the layer's fields at the top
std::span<const ConfigKey> eagle_section_keys();  ///< of its `eagle_config`
std::span<const ConfigKey> speculators_keys();    ///< of speculators' top level
std::span<const ConfigKey> eagle_layer_keys();    ///< of speculators' `transformer_layer_config`
std::span<const ConfigKey> decoding_head_keys();  ///< of Medusa's and Hydra's

}  // namespace draftscope
