#include "app/jobs/run/prompt_line.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/mapped_file.h"

namespace draftscope {
namespace {

using nlohmann::json;

/// Fields with a text, a list of texts or a list of messages, by precedence.
constexpr const char* prompt_fields[] = {"prompt",       "question", "instruction", "messages",
                                         "conversation", "turns",    "text",        "conversations",
                                         "input",        "query",    "problem"};
/// Fields of requests to servers. The command's options decide what they would.
constexpr const char* request_fields[] = {
    "tools", "functions",        "temperature",           "top_p",
    "top_k", "max_tokens",       "max_completion_tokens", "max_new_tokens",
    "stop",  "reasoning_effort", "chat_template_kwargs"};

const json* find_field(const json& object, const char* key) {
    const auto found = object.find(key);
    return found == object.end() || found->is_null() ? nullptr : &*found;
}

std::string text_field(const json& object, std::initializer_list<const char*> keys) {
    for (const char* key : keys)
        if (const json* found = find_field(object, key); found != nullptr && found->is_string())
            return found->get<std::string>();
    return {};
}

std::string read_id(const json& entry, std::size_t ordinal) {
    for (const char* key : {"id", "question_id", "task_id", "custom_id", "prompt_id"}) {
        const json* found = find_field(entry, key);
        if (found == nullptr) continue;
        if (found->is_string()) return found->get<std::string>();
        if (found->is_number()) return found->dump();
    }
    return std::to_string(ordinal);
}

/// Returns the role that chat templates know; "" for tools and other unknown ones.
std::string to_role(const std::string& name) {
    static const std::map<std::string, std::string, std::less<>> roles = {
        {"user", "user"},         {"human", "user"},      {"assistant", "assistant"}, {"gpt", "assistant"},
        {"chatgpt", "assistant"}, {"bing", "assistant"},  {"bard", "assistant"},      {"model", "assistant"},
        {"system", "system"},     {"developer", "system"}};
    const auto found = roles.find(name);
    return found == roles.end() ? std::string() : found->second;
}

/// Joins the texts of a content's typed parts with line ends, as vLLM does.
Result<std::string> read_content(const json* content) {
    if (content == nullptr) return bad_input("a message has no content");
    if (content->is_string()) return content->get<std::string>();
    if (!content->is_array()) return bad_input("a message's content is neither a text nor a list of parts");
    std::string out;
    for (const json& part : *content) {
        const std::string text = part.is_string()   ? part.get<std::string>()
                                 : part.is_object() ? text_field(part, {"text"})
                                                    : std::string();
        if (part.is_object() && !part.contains("text"))
            return bad_input("a message has a part of type '{}'; only texts are read",
                             printable(text_field(part, {"type"})));
        out += (out.empty() ? "" : "\n") + text;
    }
    return out;
}

Result<ChatMessage> read_message(const json& message, const std::string& field) {
    if (message.is_string()) return ChatMessage{"user", message.get<std::string>()};
    if (!message.is_object()) return bad_input("an entry of {} is not a string or a message", field);
    const std::string name = text_field(message, {"role", "from"});
    const std::string role = to_role(name);
    if (role.empty())
        return bad_input("a message of {} has role '{}'; known are system, user and assistant", field,
                         printable(name));
    const json* content = find_field(message, "content");
    for (const char* key : {"value", "text"})
        if (content == nullptr) content = find_field(message, key);
    if (find_field(message, "tool_calls") != nullptr)
        return bad_input("a message of {} calls tools; only texts are read", field);
    DS_ASSIGN(std::string text, read_content(content));
    return ChatMessage{role, std::move(text)};
}

/// Decoded are the user turns at the end of a conversation that have no answer, or the last one. All before
/// them is part of the prompt.
Status set_turns(std::vector<ChatMessage> messages, const std::string& field, Conversation& made) {
    while (!messages.empty() && messages.back().role != "user") messages.pop_back();
    if (messages.empty()) return bad_input("{} has no user turn", field);
    auto first = messages.end() - 1;
    while (first != messages.begin() && (first - 1)->role == "user") --first;
    for (auto turn = first; turn != messages.end(); ++turn) {
        if (turn->content.empty())
            return bad_input("{}{} is empty", field == "prompt" ? "" : "an entry of ", field);
        made.turns.push_back(std::move(turn->content));
    }
    messages.erase(first, messages.end());
    if (!messages.empty() && messages.front().role == "system") {
        made.system = std::move(messages.front().content);
        messages.erase(messages.begin());
    }
    made.history.insert(made.history.end(), messages.begin(), messages.end());
    return {};
}

Status read_turns(const json& value, const std::string& field, Conversation& made) {
    std::vector<ChatMessage> messages;
    if (value.is_string()) return set_turns({{"user", value.get<std::string>()}}, field, made);
    if (!value.is_array())
        return bad_input("{} is not a {}", field, field == "prompt" ? "string or a list" : "text or a list");
    if (value.empty()) return bad_input("{} is empty", field);
    for (const json& one : value) {
        DS_ASSIGN(ChatMessage message, read_message(one, field));
        messages.push_back(std::move(message));
    }
    return set_turns(std::move(messages), field, made);
}

/// Reads Alpaca's list of earlier questions and answers.
Status read_history(const json* pairs, Conversation& made) {
    for (const json& pair : pairs != nullptr && pairs->is_array() ? *pairs : json::array()) {
        if (!pair.is_array() || pair.size() != 2 || !pair[0].is_string() || !pair[1].is_string())
            return bad_input("an entry of history is not a question with its answer");
        made.history.push_back({"user", pair[0].get<std::string>()});
        made.history.push_back({"assistant", pair[1].get<std::string>()});
    }
    return {};
}

}  // namespace

bool is_message_list(const json& value) {
    return value.is_array() && !value.empty() && std::ranges::all_of(value, [](const json& one) {
               return one.is_object() && (one.contains("role") || one.contains("from"));
           });
}

Result<Conversation> parse_prompt(const json& given, std::size_t ordinal, std::set<std::string>& unused) {
    Conversation made;
    made.id = std::to_string(ordinal);
    if (given.is_string() || is_message_list(given)) {
        DS_TRY(read_turns(given, given.is_string() ? "prompt" : "messages", made));
        return made;
    }
    if (!given.is_object()) return bad_input("not a JSON object");
    const json* body = find_field(given, "body");  // of a batch request
    const json& entry = body != nullptr && body->is_object() ? *body : given;
    made.id = read_id(given, ordinal);
    made.category = text_field(given, {"category"});
    for (const char* key : request_fields)
        if (const json* found = find_field(entry, key);
            found != nullptr && !(found->is_array() && found->empty()))
            unused.insert(key);
    // HumanEval's lines have no category, GSM8K's have a question and its answer.
    if (made.category.empty() && made.id.starts_with("HumanEval/")) made.category = "HumanEval";
    const bool gsm8k = entry.contains("question") && entry.contains("answer");
    if (made.category.empty() && gsm8k) made.category = "GSM8K";
    std::string field = gsm8k ? "question" : "";
    for (const char* key : prompt_fields)
        if (field.empty() && find_field(entry, key) != nullptr) field = key;
    if (field.empty()) {
        std::string found;
        for (const auto& [key, value] : entry.items()) found += (found.empty() ? "" : ", ") + printable(key);
        return bad_input("has {}; needs a prompt, messages or turns", found.empty() ? "no field" : found);
    }
    DS_TRY(read_history(find_field(entry, "history"), made));
    DS_TRY(read_turns(entry.at(field), field, made));
    if (field == "instruction")
        if (const std::string more = text_field(entry, {"input", "context"}); !more.empty())
            made.turns.back() += "\n" + more;
    if (made.system.empty()) made.system = text_field(entry, {"system", "system_prompt", "instructions"});
    return made;
}

std::string json_mistake(std::string_view text) {
    try {
        [[maybe_unused]] const json read = json::parse(text);
    } catch (const json::parse_error& wrong) {
        const std::string what = wrong.what();
        const std::size_t line = what.find("line "), column = what.find("column "), dash = what.find(" - ");
        const std::size_t from = text.find('\n') < text.size() - 1 ? line : column;
        if (column == std::string::npos || dash == std::string::npos) return "not valid JSON";
        std::string why = what.substr(dash + 3);
        why.resize(std::min(why.find("; last read"), why.size()));
        std::size_t before = std::min(wrong.byte, text.size());
        before = text.find_last_not_of(" \t\r\n", before < 2 ? 0 : before - 2);
        const bool comma =
            before != std::string_view::npos && text[before] == ',' && why.starts_with("unexpected");
        return fmt::format("not valid JSON at {}: {}{}", what.substr(from, what.find(':', from) - from), why,
                           comma ? "; remove the comma before it" : "");
    } catch (const json::exception&) {
    }
    return "not valid JSON: a number is too large";
}

}  // namespace draftscope
