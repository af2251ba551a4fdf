#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "base/json_file.h"
#include "base/notes.h"
#include "base/result.h"
#include "engine/formats/config_keys.h"
#include "engine/formats/weight_source.h"

namespace draftscope {

/// The text after the colon of "eagle2:FOLDER,rope=target": a path and options.
struct DrafterSource {
    std::string path;
    std::map<std::string, std::string, std::less<>> options;
    /// Returns the value of an option, which must be one of `values`; the first of them if it is absent.
    Result<std::string> choice(std::string_view option, std::span<const std::string_view> values) const;
};
/// Parses trailing ",key=value" options. A path that exists is taken whole, also with commas in it. Keys
/// outside `known` are an error behind a path that exists, and else a part of the path.
Result<DrafterSource> parse_drafter_source(std::string_view text, std::span<const std::string_view> known);
/// Returns the path without the options. `known` matters only for a path that does not exist.
std::string parse_drafter_path(std::string_view text, std::span<const std::string_view> known = {});

/// An open drafter checkpoint: a folder with config.json and its weights, or the weights file itself.
struct DrafterFiles {
    std::optional<JsonFile> config;  ///< config.json next to the weights
    std::unique_ptr<WeightSource> weights;
};
/// Opens a checkpoint. In a folder, the first of `names` that exists, whole or as an index with shards, is
/// opened: safetensors or a PyTorch checkpoint.
Result<DrafterFiles> open_drafter_files(const std::string& path, std::span<const std::string_view> names,
                                        Notes& notes);

/// Fields of drafters' config.json, as their published writers write them (docs/FORMATS.md).
extern const std::vector<ConfigKey> eagle_keys;          ///< of a config with the layer's fields at the top
extern const std::vector<ConfigKey> eagle_section_keys;  ///< of its `eagle_config`
extern const std::vector<ConfigKey> speculators_keys;    ///< of speculators' top level
extern const std::vector<ConfigKey> eagle_layer_keys;    ///< of speculators' `transformer_layer_config`
extern const std::vector<ConfigKey> decoding_head_keys;  ///< of Medusa's and Hydra's

/// A published family of drafters that config or tensors show.
struct FamilyMatch {
    std::string_view name;      ///< "P-EAGLE"
    std::string_view drafters;  ///< what drafts with it here: "eagle2 or eagle3"; "" = nothing
    std::string evidence;       ///< "it has tensor 'mask_hidden'"
};
/// Returns the family of a checkpoint; nullopt if nothing shows one. `config` is null without config.json.
std::optional<FamilyMatch> find_family(const nlohmann::json& config, const WeightSource& weights);
/// Returns an error if config or tensors are of another published family than those of `supported`. The
/// message names the first of them.
Status check_family(const DrafterFiles& files, std::initializer_list<std::string_view> supported);

/// Returns an error if a tensor is neither used nor accepted by `may_ignore`. It would mean an unsupported
/// variant of `kind`.
Status check_all_used(const WeightSource& weights, const std::set<std::string, std::less<>>& used,
                      std::string_view kind, bool (*may_ignore)(std::string_view) = nullptr);

}  // namespace draftscope
