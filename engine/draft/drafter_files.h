#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "engine/model/json_file.h"
#include "engine/model/weight_source.h"
#include "kernels/matrix.h"

namespace draftscope {

/// What follows the colon of "eagle2:FOLDER,rope=target": a place, and options.
struct DrafterPlace {
    std::string path;
    std::map<std::string, std::string, std::less<>> options;
};
/// A trailing ",key=value" is an option, which must be one of `known`.
Result<DrafterPlace> parse_drafter_place(std::string_view text, std::span<const std::string_view> known);
/// The place alone, whatever the options.
std::string drafter_path_of(std::string_view text);

/// A drafter checkpoint, opened: a folder with config.json and one weights file, or that file itself.
struct DrafterFiles {
    std::string weights_path;
    std::optional<JsonFile> config;  ///< config.json beside the weights
    std::unique_ptr<WeightSource> weights;
};
/// In a folder the first of `names` that is there is opened: safetensors or a PyTorch checkpoint.
Result<DrafterFiles> open_drafter_files(const std::string& path, std::span<const std::string_view> names);

/// Refuses weights that do not fit into the memory that is left.
Status check_drafter_memory(const WeightSource& weights, kernels::Precision precision);

}  // namespace draftscope
