#pragma once

#include <string_view>
#include <vector>

#include "engine/heads/head.h"
#include "engine/heads/registry.h"

/// What the heads' files share: the readers of their parameters.
namespace draftscope {

/// Returns parameter `name`, or `fallback` if absent.
Result<double> number_param(const HeadSpec& spec, std::string_view name, double fallback);
/// Returns whole-number parameter `name`, or `fallback` if absent. The registry has validated number and
/// range.
Result<int> whole_param(const HeadSpec& spec, std::string_view name, int fallback);
/// Returns the word of a parameter with choices, or `fallback` if absent.
std::string_view word_param(const HeadSpec& spec, std::string_view name, std::string_view fallback);
/// Returns the whole numbers of list parameter `name` ("16384/8192"), empty if absent.
Result<std::vector<int>> whole_list_param(const HeadSpec& spec, std::string_view name);

/// Parameter of heads in which every row of a level has its own shortlist.
inline constexpr HeadParam share_param = {"share",
                                          0,
                                          0,
                                          0,
                                          true,
                                          "how rows of a level read tokens they share: once "
                                          "(union) or each row separately; the results are equal",
                                          false,
                                          "union|per-row"};

}  // namespace draftscope
