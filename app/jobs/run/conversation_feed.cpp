#include "app/jobs/run/conversation_feed.h"

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

Result<std::vector<TokenId>> ConversationFeed::take_turn(const Target& target, Talk& talk, bool raw) {
    const std::string& user = talk.conversation->turns[static_cast<std::size_t>(talk.turn)];
    std::vector<TokenId> tokens;
    if (raw) {
        talk.text += user;
        tokens = target.tokenizer()->encode(talk.text, false);
    } else {
        talk.messages.push_back({"user", user});
        DS_ASSIGN(const std::string text, target.chat().render(talk.messages));
        tokens = target.tokenizer()->encode(text, true);
    }
    const TokenId bos = target.tokenizer()->bos();
    if (target.tokenizer()->add_bos() && bos != no_token && (tokens.empty() || tokens[0] != bos))
        tokens.insert(tokens.begin(), bos);
    const int rows = target.config().vocab;
    for (const TokenId token : tokens) {
        if (token < rows) continue;
        return bad_input(
            "'{}' is token {}, for which the model's embedding has no row (it has {}); leave it out",
            target.tokenizer()->token_bytes(token), token, rows);
    }
    return tokens;
}

Result<std::vector<TokenId>> ConversationFeed::first_turn(const Target& target,
                                                          const Conversation& conversation, bool raw) {
    Talk talk;
    talk.conversation = &conversation;
    return take_turn(target, talk, raw);
}

Status ConversationFeed::check(const Target& target, const std::vector<Conversation>& conversations,
                               bool raw) {
    const int context = target.config().context;
    for (const Conversation& conversation : conversations) {
        const auto tokens = first_turn(target, conversation, raw);
        if (!tokens.ok()) return bad_input("prompt {}: {}", conversation.id, tokens.error().message);
        if (static_cast<int>(tokens->size()) < context) continue;
        return bad_input(
            "prompt {}: {} tokens leave no room in the model's context of {}; shorten the prompt",
            conversation.id, tokens->size(), context);
    }
    return {};
}

Result<PromptInput> ConversationFeed::input_of(Talk& talk) {
    PromptInput input;
    input.id = talk.conversation->id;
    input.category = talk.conversation->category;
    input.suite = settings_.suite;
    input.turn = talk.turn;
    input.ordinal = talk.first_ordinal + talk.turn;
    input.text = talk.conversation->turns[static_cast<std::size_t>(talk.turn)];
    DS_ASSIGN(input.tokens, take_turn(target_, talk, settings_.raw));
    return input;
}

int ConversationFeed::turns_of(const Conversation& conversation) const {
    return settings_.first_turns ? 1 : static_cast<int>(conversation.turns.size());
}

std::optional<PromptInput> ConversationFeed::next() {
    while (!ready_.empty()) {
        Talk talk = std::move(ready_.front());
        ready_.pop_front();
        auto input = input_of(talk);
        if (!input.ok()) {
            log_warning("prompt {}: the conversation ends before turn {}: {}", talk.conversation->id,
                        talk.turn + 1, input.error().message);
        } else if (static_cast<int>(input->tokens.size()) < target_.config().context) {
            playing_.push_back(std::move(talk));
            return std::move(input).value();
        } else {
            log_warning("prompt {}: turn {} no longer fits the model's context; the conversation ends there",
                        input->id, input->turn + 1);
        }
    }
    while (begun_ < conversations_.size()) {
        tell_progress();
        Talk talk;
        talk.conversation = &conversations_[begun_++];
        talk.first_ordinal = ordinals_;
        ordinals_ += turns_of(*talk.conversation);
        auto input = input_of(talk);
        if (input.ok()) {
            playing_.push_back(std::move(talk));
            return std::move(input).value();
        }
        log_warning("prompt {} is skipped: {}", talk.conversation->id, input.error().message);
    }
    return std::nullopt;
}

void ConversationFeed::text(const PromptInput&, std::string_view piece) {
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
