#pragma once

#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "app/jobs/prompt_file.h"
#include "app/jobs/run_job.h"
#include "engine/model/chat_template.h"
#include "engine/model/target.h"
#include "engine/session/session.h"

namespace draftscope {

/// The prompts of a run's conversations. A turn needs the answers before it, so a conversation's next turn
/// becomes ready when its last one ended; a new conversation begins when no turn is ready.
class ConversationFeed final : public PromptFeed {
  public:
    struct Settings {
        bool raw = false;           ///< no chat template: turns and answers follow one another as they are
        bool first_turns = false;   ///< leaves the other turns out
        bool whole_answers = true;  ///< text is passed on when its prompt has ended, not piece by piece
        std::string suite;
    };
    /// `conversations` outlive the feed.
    ConversationFeed(const Target& target, const std::vector<Conversation>& conversations, Settings settings,
                     const RunHooks& hooks, std::string activity);

    std::optional<PromptInput> next() override;
    void text(const PromptInput& prompt, std::string_view piece) override;
    void done(const PromptInput& prompt, PromptOutcome outcome) override;

    /// What ended so far, in the order of the run's prompts.
    std::vector<PromptReport> take_reports();

    /// The first turn of a conversation as tokens; an error is the chat template's.
    static Result<std::vector<TokenId>> first_turn(const Target& target, const Conversation& conversation,
                                                   bool raw);
    /// Whether every conversation's first turn can be written and leaves room for an answer; for checks
    /// before a run.
    static Status check(const Target& target, const std::vector<Conversation>& conversations, bool raw);

  private:
    struct Talk {
        const Conversation* conversation = nullptr;
        int first_ordinal = 0;  ///< of its first turn among the prompts of the run, played or not
        int turn = 0;           ///< to be played next
        std::vector<ChatMessage> messages;
        std::string text;  ///< of a raw conversation
    };
    /// Puts the next user turn behind the talk and returns everything as tokens; an error is the chat
    /// template's.
    static Result<std::vector<TokenId>> take_turn(const Target& target, Talk& talk, bool raw);
    Result<PromptInput> input_of(Talk& talk);
    int turns_of(const Conversation& conversation) const;
    void tell_progress() const;

    const Target& target_;
    const std::vector<Conversation>& conversations_;
    Settings settings_;
    const RunHooks& hooks_;
    std::string activity_;
    std::size_t begun_ = 0;  ///< conversations
    int ordinals_ = 0;       ///< prompts of the conversations begun
    std::deque<Talk> ready_;
    std::deque<Talk> playing_;
    std::vector<PromptReport> reports_;
};

}  // namespace draftscope
