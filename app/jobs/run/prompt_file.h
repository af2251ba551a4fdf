#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace draftscope {

/// One line of a prompt file: user turns, decoded in order with the model's answers between them.
struct Conversation {
    std::string id;  ///< the file's id, question_id or task_id, else the line's ordinal from 0
    std::string category;
    std::vector<std::string> turns;
};

/// Reads JSONL with `prompt` or `turns[]` per line; Spec-Bench, HumanEval and GSM8K files load unchanged.
/// Lines of the latter two get the categories "HumanEval" and "GSM8K". `limit` 0 = all. `stratify` selects
/// from the categories in turn; the result is in file order.
Result<std::vector<Conversation>> read_prompt_file(const std::string& path, int limit, bool balanced);

}  // namespace draftscope
