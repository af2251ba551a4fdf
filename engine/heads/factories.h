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
Result<int> int_param(const HeadSpec& spec, std::string_view name, int fallback);
/// Returns the word of a parameter with choices, or `fallback` if absent.
std::string_view word_param(const HeadSpec& spec, std::string_view name, std::string_view fallback);
/// Returns the whole numbers of list parameter `name` ("16384/8192"), empty if absent.
Result<std::vector<int>> int_list_param(const HeadSpec& spec, std::string_view name);

/// Parameter of heads that propose a part of the vocabulary. The papers state no rule for the tokens that end
/// the text: they are drafted like any other token.
inline constexpr HeadParam eos_param = {
    "eos", 0, 0, 0, true, "tokens that end the text are always active", false, "no|yes"};
/// Returns the value of that parameter.
inline bool keeps_ends(const HeadSpec& spec) {
    return word_param(spec, eos_param.name, "no") == "yes";
}

/// Size of heads that keep a part of the vocabulary.
inline constexpr HeadSizeParam vocab_size_param = {
    .name = "v", .unit = HeadSizeParam::Unit::vocab, .values = {1.0 / 16, 1.0 / 8, 1.0 / 4, 1.0 / 2}};

/// Parameter of heads whose logits are one product (LinearLmHead).
inline constexpr HeadParam softmax_param = {"softmax",
                                            0,
                                            0,
                                            0,
                                            true,
                                            "log-sum-exp of the logits: with the product (fused), or as a "
                                            "phase of its own before the top-k; the results are equal",
                                            false,
                                            "fused|separate"};

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
