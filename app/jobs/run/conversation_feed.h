#pragma once

#include <algorithm>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "app/jobs/run/prompt_file.h"
#include "app/jobs/run/run_job.h"
#include "engine/chat_template/chat_template.h"
#include "engine/decode/session.h"
#include "engine/transformer/target.h"

namespace draftscope {

/// Returns how the prompts of a run become text: by its model's chat template with the run's switches, or
/// raw. Appends what was chosen or is odd to `notes`.
Result<ChatTemplate> choose_chat(const Target& target, const RunConfig& config,
                                 const std::vector<Conversation>& conversations, Notes& notes);

/// Supplies the prompts of a run's conversations. A turn depends on the previous answers, so it becomes ready
/// when the turn before it has ended. A new conversation begins when no turn is ready.
class ConversationFeed final : public PromptFeed {
  public:
    struct Settings {
        ChatTemplate chat = {};     ///< raw: turns and answers are concatenated unchanged
        bool first_turns = false;   ///< only the first turn of each conversation
        bool whole_answers = true;  ///< pass text on when its prompt has ended, not piece by piece
        std::string suite;
    };
    /// `conversations` must outlive the feed.
    ConversationFeed(const Target& target, const std::vector<Conversation>& conversations, Settings settings,
                     const RunHooks& hooks, std::string activity);

    std::optional<PromptInput> next() override;
    void text(const PromptInput& prompt, std::string_view piece) override;
    void done(const PromptInput& prompt, PromptOutcome outcome) override;

    /// Lets at most `count` further conversations begin; without a call, all may.
    void allow(std::size_t count) { end_ = started_ + std::min(count, conversations_.size() - started_); }
    bool ended() const { return started_ == conversations_.size(); }
    double prefill_seconds() const;  ///< of the prompts that have ended
    /// Returns the prompts that have ended, in the order of the run's prompts.
    std::vector<PromptReport> take_reports();

    /// Returns prompts that were skipped and conversations that ended early.
    const Notes& notes() const { return notes_; }

    /// Returns the whole text of a prompt as tokens; special tokens in it are read. `raw`: no template wrote
    /// it.
    static Result<std::vector<TokenId>> encode_prompt(const Target& target, const std::string& text,
                                                      bool raw);
    /// Returns the first turn of a conversation as tokens. Errors come from the chat template.
    static Result<std::vector<TokenId>> first_turn(const Target& target, const Conversation& conversation,
                                                   const ChatTemplate& chat);
    /// Removes conversations whose first turn cannot be rendered or leaves no room for an answer, and counts
    /// them in `notes`. Returns their indices. None left is an error, unless `may_be_empty`.
    static Result<std::vector<int>> drop_unusable(const Target& target, const ChatTemplate& chat,
                                                  std::vector<Conversation>& conversations, bool may_be_empty,
                                                  Notes& notes);

  private:
    struct ConversationState {
        const Conversation* conversation = nullptr;
        int first_ordinal = 0;  ///< of its first turn among the run's prompts
        int turn = 0;           ///< the next turn to decode
        std::vector<ChatMessage> messages;
    };
    /// Appends the next user turn and returns the whole conversation as tokens. Errors come from the chat
    /// template.
    static Result<std::vector<TokenId>> append_turn(const Target& target, ConversationState& state,
                                                    const ChatTemplate& chat);
    void note(std::string text);
    Result<PromptInput> make_input(ConversationState& state);
    void begin_text(const PromptInput& prompt) const;
    int count_turns(const Conversation& conversation) const;
    void report_progress() const;

    const Target& target_;
    const std::vector<Conversation>& conversations_;
    Settings settings_;
    const RunHooks& hooks_;
    std::string activity_;
    std::size_t started_ = 0;  ///< conversations
    std::size_t end_;          ///< conversations that may start
    std::deque<ConversationState> ready_;
    std::deque<ConversationState> active_;
    std::vector<PromptReport> reports_;
    Notes notes_;
};

}  // namespace draftscope
