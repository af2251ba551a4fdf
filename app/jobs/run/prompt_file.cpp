#include "app/jobs/run/prompt_file.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <tuple>

#include "base/hash.h"
#include "base/mapped_file.h"
#include "base/utf8.h"
#include "engine/heads/artefact.h"
#include "stats/bench_table.h"

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

/// Returns whether the value is a list of chat messages.
bool is_message_list(const json& value) {
    return value.is_array() && !value.empty() && std::ranges::all_of(value, [](const json& one) {
               return one.is_object() && (one.contains("role") || one.contains("from"));
           });
}

/// Reads a text, a list of turns or messages, or an object with one of them. docs/FORMATS.md lists the
/// fields. `ordinal` is the id of a prompt without one. Fields that ask for other settings than the command's
/// are added to `unused`. Messages do not name the file.
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

/// Returns why a text is not JSON, with its place: "not valid JSON at column 13: ...".
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

constexpr std::string_view spaces = " \t\r\n\f";
constexpr std::string_view example_line = R"({"prompt": "Name three rivers."})";

/// Returns the reason why a line is not JSON: another encoding, plain text, or a syntax error.
std::string line_mistake(std::string_view line) {
    if (line.find('\0') != std::string_view::npos || line.starts_with("\xff\xfe") ||
        line.starts_with("\xfe\xff"))
        return "is UTF-16; convert the file: iconv -f UTF-16 -t UTF-8";
    if (const std::size_t at = valid_utf8_prefix(line); at < line.size())
        return fmt::format(
            "is not UTF-8 (byte 0x{:02x} at column {}); if it is Latin-1, convert the file: iconv -f LATIN1 "
            "-t UTF-8",
            static_cast<unsigned char>(line[at]), at + 1);
    const std::size_t first = line.find_first_not_of(spaces);
    if (line.substr(first, 1).find_first_of("{[\"") == 0) return json_mistake(line);
    return "plain text instead of a JSON object";
}

/// Returns the text of a prompt file. A pipe has it only once, so that of pipes is kept.
Result<std::string> read_all(const std::string& path) {
    static std::mutex mutex;
    static std::map<std::string, std::string> pipes;
    const std::lock_guard lock(mutex);
    if (const auto found = pipes.find(path); found != pipes.end()) return found->second;
    std::error_code error;
    if (std::filesystem::is_directory(path, error))
        return bad_input("prompt file {}: is a folder; name a file with a JSON object per line", path);
    std::ifstream file;
    const bool piped = path == standard_input;
    if (!piped) file.open(path, std::ios::binary);
    if (!piped && !file) return bad_input("prompt file {}: cannot be opened", path);
    std::string text(std::istreambuf_iterator<char>(piped ? std::cin : file), {});
    if (text.starts_with("\xef\xbb\xbf")) text.erase(0, 3);
    if (piped || !std::filesystem::is_regular_file(path, error)) pipes[path] = text;
    return text;
}

/// Collects the prompts of a file, and why others are left out.
class PromptReader {
  public:
    explicit PromptReader(const std::string& path) : path_(path) {}

    void read(const std::string& text) {
        const std::size_t first = text.find_first_not_of(spaces);
        const bool is_list = first != std::string::npos && text[first] == '[';
        const json whole = json::parse(text, nullptr, false);
        if (whole.is_array() && !is_message_list(whole)) {
            for (const json& entry : whole) add(entry, fmt::format("entry {}", ordinal_ + 1));
        } else if (!whole.is_discarded()) {
            add(whole, fmt::format("line {}",
                                   1 + std::count(text.begin(),
                                                  text.begin() + static_cast<std::ptrdiff_t>(first), '\n')));
        } else if (is_list && json::parse(text.substr(0, text.find('\n')), nullptr, false).is_discarded()) {
            skip(json_mistake(text), "the list");
        } else {
            read_lines(text);
        }
    }
    Result<std::vector<Conversation>> take(Notes* notes) {
        if (read_.empty() && mistake_.empty()) return bad_input("prompt file {}: contains no prompt", path_);
        if (read_.empty())
            return bad_input("prompt file {}, {}; a prompt looks like {}", path_, mistake_, example_line);
        if (notes != nullptr && skipped_ > 0)
            add_note(*notes, "prompt file {}: {} of {} prompts {} skipped; {}{}", path_, skipped_, ordinal_,
                     skipped_ == 1 ? "is" : "are", skipped_ == 1 ? "" : "the first, ", mistake_);
        if (notes != nullptr && !unused_.empty())
            add_note(*notes, "prompt file {}: {} of its prompts {} not used; the command's options are",
                     path_, fmt::join(unused_, ", "), unused_.size() == 1 ? "is" : "are");
        return std::move(read_);
    }

  private:
    void read_lines(const std::string& text) {
        std::size_t number = 0;
        for (std::size_t at = 0; at < text.size();) {
            const std::size_t end = std::min(text.find('\n', at), text.size());
            const std::string_view line = std::string_view(text).substr(at, end - at);
            at = end + 1;
            ++number;
            if (line.find_first_not_of(spaces) == std::string_view::npos) continue;
            const json entry = json::parse(line, nullptr, false);
            const std::string where = fmt::format("line {}", number);
            if (entry.is_discarded())
                skip(line_mistake(line), where);
            else
                add(entry, where);
        }
    }
    void add(const json& entry, const std::string& where) {
        auto made = parse_prompt(entry, ordinal_, unused_);
        if (!made.ok()) return skip(made.error().message, where);
        ++ordinal_;
        read_.push_back(std::move(made).value());
    }
    void skip(const std::string& mistake, const std::string& where) {
        if (skipped_++ == 0) mistake_ = where + ": " + mistake;
        ++ordinal_;
    }

    const std::string& path_;
    std::vector<Conversation> read_;
    std::set<std::string> unused_;
    std::string mistake_;  ///< the first
    std::size_t ordinal_ = 0, skipped_ = 0;
};

/// Takes from the papers' tasks in turn, and within a task from its categories in turn.
std::vector<Conversation> select_balanced(std::vector<Conversation> all, std::size_t limit) {
    std::map<std::string, int> in_category;
    std::vector<std::string> tasks;
    std::vector<std::tuple<int, std::size_t, std::size_t>>
        places;  // turn in its category, task, conversation
    for (std::size_t i = 0; i < all.size(); ++i) {
        const std::string task = task_of_category(all[i].category);
        const std::size_t t = std::ranges::find(tasks, task) - tasks.begin();
        if (t == tasks.size()) tasks.push_back(task);
        places.emplace_back(in_category[all[i].category]++, t, i);
    }
    std::ranges::sort(places);
    std::vector<int> in_task(tasks.size());
    for (auto& [turn, task, conversation] : places) turn = in_task[task]++;
    std::ranges::sort(places);
    places.resize(std::min(places.size(), limit));
    std::ranges::sort(places, {}, [](const auto& place) { return std::get<2>(place); });
    std::vector<Conversation> out;
    for (const auto& [turn, task, conversation] : places) out.push_back(std::move(all[conversation]));
    return out;
}

/// Numbers the selected conversations and their turns.
void number(std::vector<Conversation>& conversations) {
    int index = 0, ordinal = 0;
    for (Conversation& one : conversations) {
        one.index = index++;
        one.first_ordinal = ordinal;
        ordinal += static_cast<int>(one.turns.size());
    }
}

std::string hash_prompts(const std::vector<Conversation>& conversations) {
    std::string text;
    const auto add = [&](const std::string& part) { text += fmt::format("{}:{}", part.size(), part); };
    for (const Conversation& one : conversations) {
        add(one.id);
        if (!one.system.empty()) add("system " + one.system);
        for (const ChatMessage& message : one.history) add(message.role + " " + message.content);
        for (std::size_t turn = 0; turn < one.turns.size(); ++turn)
            add(one.recording ? fmt::format("{}", fmt::join(one.recorded_tokens(turn), " "))
                              : one.turns[turn]);
    }
    return fmt::format("{:016x}", fnv1a(text));
}

Result<std::vector<Conversation>> read_recorded_prompts(const std::string& path) {
    DS_ASSIGN(const auto recording, DecodeRecording::open(path));
    const std::vector<std::size_t> place = conversation_of_prompts(recording->prompts());
    std::vector<Conversation> all(place.empty() ? 0 : *std::ranges::max_element(place) + 1);
    for (std::size_t p = 0; p < place.size(); ++p) {
        const RecordedPrompt& prompt = recording->prompts()[p];
        Conversation& one = all[place[p]];
        one.id = prompt.id;
        one.category = prompt.category;
        one.recording = recording;
        one.recorded.push_back(p);
        one.turns.emplace_back();
    }
    return all;
}

std::vector<Conversation> select(std::vector<Conversation> all, int limit, bool balanced) {
    const std::size_t wanted = limit > 0 ? limit : all.size();
    if (balanced) all = select_balanced(std::move(all), wanted);
    if (all.size() > wanted) all.resize(wanted);
    number(all);
    return all;
}

}  // namespace

std::vector<TokenId> Conversation::recorded_tokens(std::size_t turn) const {
    const RecordedPrompt& prompt = recording->prompts()[recorded[turn]];
    std::vector<TokenId> tokens = recording->tokens(prompt);
    tokens.resize(prompt.prompt_tokens);
    return tokens;
}

std::string Conversation::hash() const {
    return recording ? recording->prompts()[recorded.front()].hash : prompt_hash(turns.front());
}

Result<std::vector<Conversation>> read_prompt_file(const std::string& path, int limit, bool balanced,
                                                   Notes* notes) {
    DS_ASSIGN(const std::string text, read_all(path));
    PromptReader reader(path);
    reader.read(text);
    DS_ASSIGN(std::vector<Conversation> all, reader.take(notes));
    return select(std::move(all), limit, balanced);
}

Result<PromptSet> read_prompts(const RunConfig& config) {
    PromptSet set;
    std::error_code error;
    if (config.prompts_file.empty()) {
        set.conversations = {Conversation{"0", "", {config.prompt}, ""}};
    } else if (std::filesystem::exists(config.prompts_file + "/trace.json", error)) {
        if (config.raw || !config.system.empty() || !config.template_switches.empty())
            return bad_input(
                "--prompts {}: a recording has whole prompts; leave out --raw, --system and --template",
                config.prompts_file);
        DS_ASSIGN(set.conversations, read_recorded_prompts(config.prompts_file));
        set.conversations = select(std::move(set.conversations), config.limit, config.balanced);
    } else {
        DS_ASSIGN(set.conversations,
                  read_prompt_file(config.prompts_file, config.limit, config.balanced, &set.notes));
    }
    if (config.raw && !config.system.empty())
        return bad_input(
            "--system {}: --raw uses no chat template, so there is no system turn; use one of the two",
            config.system);
    std::size_t own = 0;
    for (Conversation& one : set.conversations)
        if (one.system.empty())
            one.system = config.system;
        else
            ++own;
    if (own > 0 && !config.system.empty())
        add_note(set.notes,
                 "prompt file {}: {} of {} prompts keep their own system turn; --system is for the others",
                 config.prompts_file, own, set.conversations.size());
    set.total = static_cast<int>(set.conversations.size());
    set.hash = hash_prompts(set.conversations);
    const Shard& shard = config.shard;
    if (shard.count > set.total)
        return bad_input(
            "--shard {}/{}: {} conversation{} can't fill {} shards; use at most {}, or raise --limit",
            shard.index, shard.count, set.total, set.total == 1 ? "" : "s", shard.count, set.total);
    std::erase_if(set.conversations, [&](const Conversation& one) { return !shard.has(one.index); });
    return set;
}

}  // namespace draftscope
