#pragma once

#include <span>
#include <string_view>

#include "base/result.h"

namespace draftscope {

/// One number of a drafter without weights: "ngram:max=3".
struct DrafterParam {
    std::string_view name;
    double min = 0, max = 0;
    double* value = nullptr;
    bool is_integer = true;  ///< whole numbers only
};
/// Reads "key=value,..." into the parameters' values. An error names the drafter, the key and the range.
Status read_params(std::string_view drafter, std::string_view text, std::span<const DrafterParam> params);

}  // namespace draftscope
