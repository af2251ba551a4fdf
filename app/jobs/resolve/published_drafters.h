#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace draftscope {

/// A drafter that others have published for a target (assets/published_drafters.json).
struct PublishedDrafter {
    std::string target;   ///< a model's name, or the start of a family's names, which ends with "-"
    std::string drafter;  ///< id in the registry
    std::string at;       ///< id on the model hub
    std::string layout;   ///< whose files it has: "EAGLE", "speculators", "SpecForge" or "a model"
    std::optional<double> billions;  ///< parameters; absent = not published
    std::string source;              ///< where it is named
};
Result<std::vector<PublishedDrafter>> read_published_drafters();
/// Returns those for the model of a file, folder or hub id. First come those of the longest name that it
/// contains, then its family's draft models. Names are compared without case, punctuation and folders.
std::vector<PublishedDrafter> drafters_for(std::string_view model, const std::vector<PublishedDrafter>& all);

}  // namespace draftscope
