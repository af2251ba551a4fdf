#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "engine/formats/json_file.h"
#include "engine/formats/weight_source.h"
#include "kernels/matrix.h"

namespace draftscope {

/// The text after the colon of "eagle2:FOLDER,rope=target": a path and options.
struct DrafterSource {
    std::string path;
    std::map<std::string, std::string, std::less<>> options;
};
/// Parses trailing ",key=value" options; a key outside `known` is an error.
Result<DrafterSource> parse_drafter_source(std::string_view text, std::span<const std::string_view> known);
/// Returns the path without the options.
std::string parse_drafter_path(std::string_view text);

/// An open drafter checkpoint: a folder with config.json and one weights file, or the file itself.
struct DrafterFiles {
    std::string weights_path;
    std::optional<JsonFile> config;  ///< config.json next to the weights
    std::unique_ptr<WeightSource> weights;
};
/// Opens a checkpoint. In a folder, the first existing file of `names` is opened: safetensors or a PyTorch
/// checkpoint.
Result<DrafterFiles> open_drafter_files(const std::string& path, std::span<const std::string_view> names);

/// Returns an error if the weights exceed the available memory.
Status check_drafter_memory(const WeightSource& weights, kernels::Precision precision);

}  // namespace draftscope
