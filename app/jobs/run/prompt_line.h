#pragma once

#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <string_view>

#include "app/jobs/run/prompt_file.h"
#include "base/result.h"

namespace draftscope {

/// Reads a text, a list of turns or messages, or an object with one of them. docs/FORMATS.md lists the
/// fields. `ordinal` is the id of a prompt without one. Fields that ask for other settings than the command's
/// are added to `unused`. Messages do not name the file.
Result<Conversation> parse_prompt(const nlohmann::json& entry, std::size_t ordinal,
                                  std::set<std::string>& unused);

/// Returns why a text is not JSON, with its place: "not valid JSON at column 13: ...".
std::string json_mistake(std::string_view text);

/// Returns whether the value is a list of chat messages.
bool is_message_list(const nlohmann::json& value);

}  // namespace draftscope
