#include "app/jobs/run/conversation_feed.h"

#include <tuple>
#include <utility>

#include "base/notes.h"
#include "engine/recording/record_decode.h"

namespace draftscope {

namespace {

/// Recorded tokens are prompts of the model that they were recorded from, and of no other.
Status check_recorded_target(const DecodeRecording& recording, const Target& target) {
    const RecordedTarget recorded = recording.info().target, loaded = describe_target(target);
    const auto shape = [](const RecordedTarget& one) {
        return std::tuple(one.layers, one.hidden, one.vocab, one.tokenizer_hash);
    };
    if (shape(recorded) == shape(loaded)) return {};
    return bad_input("--prompts {}: was recorded from {}, and the model is {}; name the recorded one",
                     recording.folder(), recorded.name, loaded.name);
}

}  // namespace

Result<ChatTemplate> choose_chat(const Target& target, const RunConfig& config,
                                 const std::vector<Conversation>& conversations, Notes& notes) {
    const bool recorded = !conversations.empty() && conversations.front().recording;
    const bool switched = !config.template_switches.empty();
    if (config.raw && switched)
        return bad_input("--template {}: --raw uses no chat template; use one of the two",
                         config.template_switches.front());
    ChatTemplate chat;
    if (!config.raw) chat = target.chat().with_switches(config.template_switches);
    if (!chat.problem().empty()) return bad_input("{}", chat.problem());
    if (recorded) return ChatTemplate();
    if (!chat.is_raw()) {
        append_notes(notes, chat.notes(std::ranges::any_of(
                                conversations, [](const Conversation& one) { return !one.system.empty(); })));
        return chat;
    }
    if (!config.raw) {
        if (switched || !config.system.empty())
            return bad_input(
                "{}: {} has no chat template, which would write it; leave it out",
                switched ? "--template " + config.template_switches.front() : "--system " + config.system,
                target.path());
        add_note(notes,
                 "{}: has no chat template, so prompts are sent as they are, as with --raw; a template may "
                 "stand in chat_template.jinja or tokenizer_config.json of a folder, or in "
                 "tokenizer.chat_template of a GGUF file",
                 target.path());
    }
    if (!target.tokenizer()->bos_note().empty()) notes.push_back(target.tokenizer()->bos_note());
    return ChatTemplate();
}

ConversationFeed::ConversationFeed(const Target& target, const std::vector<Conversation>& conversations,
                                   Settings settings, const RunHooks& hooks, std::string activity)
    : target_(target),
      conversations_(conversations),
      settings_(std::move(settings)),
      hooks_(hooks),
      activity_(std::move(activity)),
      end_(conversations.size()) {}

Result<std::vector<TokenId>> ConversationFeed::append_turn(const Target& target, ConversationState& state,
                                                           const ChatTemplate& chat) {
    if (state.conversation->recording) return state.conversation->recorded_tokens(state.turn);
    const Conversation& about = *state.conversation;
    const std::string& user = about.turns[state.turn];
    if (chat.is_raw() && !(about.system.empty() && about.history.empty()))
        return bad_input("has a system turn or earlier answers, which only a chat template can write");
    if (state.messages.empty()) {
        if (!about.system.empty()) state.messages.push_back({"system", about.system});
        state.messages.insert(state.messages.end(), about.history.begin(), about.history.end());
    }
    state.messages.push_back({"user", user});
    DS_ASSIGN(const std::string text, chat.render(state.messages));
    return encode_prompt(target, text, chat.is_raw());
}

Result<std::vector<TokenId>> ConversationFeed::encode_prompt(const Target& target, const std::string& text,
                                                             bool raw) {
    std::vector<TokenId> tokens = target.tokenizer()->encode(text, true);
    const TokenId bos = target.tokenizer()->bos();
    if (target.tokenizer()->add_bos(!raw) && bos != no_token && (tokens.empty() || tokens[0] != bos))
        tokens.insert(tokens.begin(), bos);
    const TokenId eos = target.tokenizer()->named_eos();
    if (target.tokenizer()->add_eos() && (tokens.empty() || tokens.back() != eos)) tokens.push_back(eos);
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
                                                          const Conversation& conversation,
                                                          const ChatTemplate& chat) {
    ConversationState state;
    state.conversation = &conversation;
    return append_turn(target, state, chat);
}

Result<std::vector<int>> ConversationFeed::drop_unusable(const Target& target, const ChatTemplate& chat,
                                                         std::vector<Conversation>& conversations,
                                                         bool may_be_empty, Notes& notes) {
    const int context = target.config().context;
    if (!conversations.empty() && conversations.front().recording)
        DS_TRY(check_recorded_target(*conversations.front().recording, target));
    const std::size_t count = conversations.size();
    std::vector<int> dropped;
    std::string first;
    std::erase_if(conversations, [&](const Conversation& one) {
        const auto tokens = first_turn(target, one, chat);
        if (tokens.ok() && static_cast<int>(tokens->size()) < context) return false;
        if (first.empty())
            first = fmt::format(
                "prompt {}: {}", one.id,
                !tokens.ok()
                    ? tokens.error().message
                    : fmt::format("{} tokens leave no room in the model's context of {}; shorten the "
                                  "prompt",
                                  tokens->size(), context));
        dropped.push_back(one.index);
        return true;
    });
    if (dropped.empty()) return dropped;
    if (conversations.empty() && !may_be_empty) return bad_input("{}", first);
    add_note(notes, "{} of {} prompts {} skipped; {}{}", dropped.size(), count,
             dropped.size() == 1 ? "is" : "are", dropped.size() == 1 ? "" : "the first, ", first);
    return dropped;
}

void ConversationFeed::note(std::string text) {
    say_notes({text});
    notes_.push_back(std::move(text));
}

Result<PromptInput> ConversationFeed::make_input(ConversationState& state) {
    PromptInput input;
    input.id = state.conversation->id;
    input.category = state.conversation->category;
    input.suite = settings_.suite;
    input.turn = state.turn;
    input.ordinal = state.first_ordinal + state.turn;
    input.text = state.conversation->turns[state.turn];
    DS_ASSIGN(input.tokens, append_turn(target_, state, settings_.chat));
    if (state.conversation->recording) input.text = target_.tokenizer()->decode(input.tokens);
    return input;
}

int ConversationFeed::count_turns(const Conversation& conversation) const {
    return settings_.first_turns ? 1 : static_cast<int>(conversation.turns.size());
}

std::optional<PromptInput> ConversationFeed::next() {
    while (!ready_.empty()) {
        ConversationState state = std::move(ready_.front());
        ready_.pop_front();
        auto input = make_input(state);
        if (!input.ok()) {
            note(fmt::format("prompt {}: the conversation ends before turn {}: {}", state.conversation->id,
                             state.turn + 1, input.error().message));
        } else if (static_cast<int>(input->tokens.size()) < target_.config().context) {
            report_progress();
            active_.push_back(std::move(state));
            if (!settings_.whole_answers) begin_text(*input);
            return std::move(input).value();
        } else {
            note(fmt::format(
                "prompt {}: turn {} no longer fits the model's context; the conversation ends there",
                input->id, input->turn + 1));
        }
    }
    while (started_ < end_) {
        report_progress();
        ConversationState state;
        state.conversation = &conversations_[started_];
        state.first_ordinal =
            settings_.first_turns ? static_cast<int>(started_) : state.conversation->first_ordinal;
        ++started_;
        auto input = make_input(state);
        if (input.ok()) {
            active_.push_back(std::move(state));
            if (!settings_.whole_answers) begin_text(*input);
            return std::move(input).value();
        }
        note(fmt::format("prompt {} is skipped: {}", state.conversation->id, input.error().message));
    }
    return std::nullopt;
}

void ConversationFeed::begin_text(const PromptInput& prompt) const {
    if (!hooks_.on_title || (conversations_.size() == 1 && count_turns(conversations_.front()) == 1)) return;
    const std::string number = std::to_string(*prompt.ordinal + 1);
    hooks_.on_title(fmt::format("prompt {}, id {}{}", number, prompt.id,
                                prompt.turn > 0 ? fmt::format(", turn {}", prompt.turn + 1) : ""));
}

void ConversationFeed::text(const PromptInput&, std::string_view piece) {
    if (!settings_.whole_answers && hooks_.on_text) hooks_.on_text(piece);
}

void ConversationFeed::done(const PromptInput& prompt, PromptOutcome outcome) {
    if (settings_.whole_answers) begin_text(prompt);
    if (hooks_.on_text) hooks_.on_text(settings_.whole_answers ? outcome.text + "\n" : "\n");
    const auto found = std::find_if(active_.begin(), active_.end(), [&](const ConversationState& state) {
        return state.first_ordinal + state.turn == *prompt.ordinal;
    });
    ConversationState state = std::move(*found);
    active_.erase(found);
    ++state.turn;
    const bool continues = state.turn < count_turns(*state.conversation) &&
                           outcome.finish != Finish::context && outcome.finish != Finish::cancelled;
    if (continues) {
        state.messages.push_back({"assistant", outcome.text});
        ready_.push_back(std::move(state));
    }
    reports_.push_back({prompt.id, prompt.category, *prompt.ordinal, std::move(outcome)});
}

std::vector<PromptReport> ConversationFeed::take_reports() {
    std::sort(reports_.begin(), reports_.end(),
              [](const PromptReport& a, const PromptReport& b) { return a.ordinal < b.ordinal; });
    return std::move(reports_);
}

double ConversationFeed::prefill_seconds() const {
    double sum = 0;
    for (const PromptReport& prompt : reports_) sum += seconds(prompt.outcome.prefill_ns);
    return sum;
}

void ConversationFeed::report_progress() const {
    std::size_t prompts = 0;
    for (const Conversation& one : conversations_) prompts += count_turns(one);
    if (!hooks_.on_progress || prompts < 2) return;
    const std::size_t begun = reports_.size() + active_.size();
    hooks_.on_progress(static_cast<double>(begun) / static_cast<double>(prompts),
                       fmt::format("{} {} of {}", activity_, begun + 1, prompts));
}

}  // namespace draftscope
