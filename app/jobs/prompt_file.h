#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace draftscope {

/// One line of a prompt file: turns are played one after the other, with the model's own answers between
/// them.
struct Conversation {
    std::string id;  ///< the file's id, question_id or task_id, else the line's ordinal from 0
    std::string category;
    std::vector<std::string> turns;
};

/// JSONL with `prompt` or `turns[]` per line (Spec-Bench and HumanEval files load unchanged). `limit` 0 =
/// all; `stratify` takes them in turn from the categories, each in file order, and gives them back in file
/// order.
Result<std::vector<Conversation>> read_prompt_file(const std::string& path, int limit, bool stratify);

}  // namespace draftscope
