#pragma once

#include <memory>
#include <string>
#include <vector>

#include "app/jobs/commands/run_config.h"
#include "base/notes.h"
#include "base/result.h"
#include "engine/chat_template/chat_template.h"
#include "engine/recording/recording.h"

namespace draftscope {

/// One prompt of a file: user turns, decoded in order with the model's answers between them.
struct Conversation {
    std::string id;  ///< the file's id, question_id or the like, else the prompt's ordinal from 0
    std::string category;
    std::vector<std::string> turns;
    std::string system;                     ///< turn before the first, "" = the chat template's own, if any
    std::vector<ChatMessage> history = {};  ///< of the file, between the system turn and `turns`
    int index = 0;                          ///< in the selected set, from 0; the same in every shard of it
    int first_ordinal = 0;                  ///< of its first turn among the turns of the set
    /// With a recording, a turn's tokens are those of its prompt `recorded[turn]`, and its text is empty.
    std::shared_ptr<const DecodeRecording> recording = {};
    std::vector<std::size_t> recorded = {};

    std::vector<TokenId> recorded_tokens(std::size_t turn) const;
    std::string hash() const;  ///< prompt_hash() of the first turn; "" = unknown
};
/// The conversations of a run.
struct PromptSet {
    std::vector<Conversation> conversations;  ///< of the shard
    int total = 0;                            ///< conversations of all shards
    std::string hash;                         ///< of the ids and turns of all shards
    Notes notes;                              ///< what was skipped or odd
};

/// Reads a prompt per line or a JSON array of prompts, in any form of parse_prompt(); "-" is standard input.
/// HumanEval's and GSM8K's get the categories "HumanEval" and "GSM8K". Malformed prompts are left out and
/// counted in `notes`; a file without any other is bad_input. `limit` 0 = all. `balanced` selects from the
/// tasks of task_of_category() in turn; the result is in file order.
Result<std::vector<Conversation>> read_prompt_file(const std::string& path, int limit, bool balanced,
                                                   Notes* notes = nullptr);
/// Returns the prompts that `config` selects: its prompt, or the shard of its file or recording. A shard
/// without conversations is bad_input.
Result<PromptSet> read_prompts(const RunConfig& config);

}  // namespace draftscope
