#include "app/jobs/conversation_feed.h"

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace draftscope {

ConversationFeed::ConversationFeed(const Target& target, const std::vector<Conversation>& conversations,
                                   Settings settings, const RunHooks& hooks, std::string activity)
    : target_(target),
      conversations_(conversations),
      settings_(std::move(settings)),
      hooks_(hooks),
      activity_(std::move(activity)) {}

std::vector<TokenId> ConversationFeed::take_turn(const Target& target, Talk& talk, bool raw) {
    const std::string& user = talk.conversation->turns[static_cast<std::size_t>(talk.turn)];
    std::vector<TokenId> tokens;
    if (raw) {
        talk.text += user;
        tokens = target.tokenizer()->encode(talk.text, false);
    } else {
        talk.messages.push_back({"user", user});
        tokens = target.tokenizer()->encode(target.chat().render(talk.messages), true);
    }
    const TokenId bos = target.tokenizer()->bos();
    if (target.tokenizer()->add_bos() && bos != no_token && (tokens.empty() || tokens[0] != bos))
        tokens.insert(tokens.begin(), bos);
    return tokens;
}

std::vector<TokenId> ConversationFeed::first_turn(const Target& target, const Conversation& conversation,
                                                  bool raw) {
    Talk talk;
    talk.conversation = &conversation;
    return take_turn(target, talk, raw);
}

PromptInput ConversationFeed::input_of(Talk& talk) {
    PromptInput input;
    input.id = talk.conversation->id;
    input.category = talk.conversation->category;
    input.suite = settings_.suite;
    input.turn = talk.turn;
    input.ordinal = talk.first_ordinal + talk.turn;
    input.text = talk.conversation->turns[static_cast<std::size_t>(talk.turn)];
    input.tokens = take_turn(target_, talk, settings_.raw);
    return input;
}

int ConversationFeed::turns_of(const Conversation& conversation) const {
    return settings_.first_turns ? 1 : static_cast<int>(conversation.turns.size());
}

std::optional<PromptInput> ConversationFeed::next() {
    while (!ready_.empty()) {
        Talk talk = std::move(ready_.front());
        ready_.pop_front();
        PromptInput input = input_of(talk);
        if (static_cast<int>(input.tokens.size()) < target_.config().context) {
            playing_.push_back(std::move(talk));
            return input;
        }
        log_warning("prompt {}: turn {} no longer fits the model's context; the conversation ends there",
                    input.id, input.turn + 1);
    }
    if (begun_ == conversations_.size()) return std::nullopt;
    tell_progress();
    Talk talk;
    talk.conversation = &conversations_[begun_++];
    talk.first_ordinal = ordinals_;
    ordinals_ += turns_of(*talk.conversation);
    PromptInput input = input_of(talk);
    playing_.push_back(std::move(talk));
    return input;
}

void ConversationFeed::text(const PromptInput&, const std::string& piece) {
    if (!settings_.whole_answers && hooks_.on_text) hooks_.on_text(piece);
}

void ConversationFeed::done(const PromptInput& prompt, PromptOutcome outcome) {
    if (hooks_.on_text) hooks_.on_text(settings_.whole_answers ? outcome.text + "\n" : "\n");
    const auto found = std::find_if(playing_.begin(), playing_.end(), [&](const Talk& talk) {
        return talk.first_ordinal + talk.turn == *prompt.ordinal;
    });
    Talk talk = std::move(*found);
    playing_.erase(found);
    ++talk.turn;
    const bool goes_on = talk.turn < turns_of(*talk.conversation) && outcome.finish != Finish::context &&
                         outcome.finish != Finish::cancelled;
    if (goes_on) {
        if (settings_.raw)
            talk.text += outcome.text;
        else
            talk.messages.push_back({"assistant", outcome.text});
        ready_.push_back(std::move(talk));
    }
    reports_.push_back({prompt.id, prompt.category, *prompt.ordinal, std::move(outcome)});
}

std::vector<PromptReport> ConversationFeed::take_reports() {
    std::sort(reports_.begin(), reports_.end(),
              [](const PromptReport& a, const PromptReport& b) { return a.ordinal < b.ordinal; });
    return std::move(reports_);
}

void ConversationFeed::tell_progress() const {
    if (!hooks_.on_progress || conversations_.size() < 2) return;
    hooks_.on_progress(static_cast<double>(begun_) / static_cast<double>(conversations_.size()),
                       fmt::format("{} {} of {}", activity_, begun_ + 1, conversations_.size()));
}

}  // namespace draftscope
