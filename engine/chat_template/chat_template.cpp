#include "engine/chat_template/chat_template.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <ctime>
#include <utility>

#include "engine/chat_template/template.h"
#include "engine/chat_template/value.h"
#include "engine/tokenizer/tokenizer.h"

namespace draftscope {
namespace {

/// Texts of a trial rendering. No template has them.
constexpr std::string_view user_probe = "qzuserprobe", system_probe = "qzsystemprobe";
constexpr std::string_view date_key = "date";

bool is_word(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

/// Returns whether `source` has `name` as a whole word.
bool mentions(std::string_view source, std::string_view name) {
    for (std::size_t at = source.find(name); at != std::string_view::npos; at = source.find(name, at + 1)) {
        const std::size_t end = at + name.size();
        if ((at == 0 || !is_word(source[at - 1])) && (end == source.size() || !is_word(source[end])))
            return true;
    }
    return false;
}

bool contains(const Result<std::string>& text, std::string_view part) {
    return text.ok() && text->find(part) != std::string::npos;
}

/// Reads true, false, a number or a quoted text as in JSON or Python; any other value is a text.
jinja::Value to_switch_value(const std::string& text) {
    if (text == "True" || text == "False") return text == "True";
    jinja::Value value = jinja::Value::parse(text, nullptr, false);
    return value.is_boolean() || value.is_number() || value.is_string() ? value : jinja::Value(text);
}

/// Reads YYYY-MM-DD.
Result<std::tm> to_date(const std::string& text) {
    std::tm date{};
    const char* const end = strptime(text.c_str(), "%Y-%m-%d", &date);
    const int day = date.tm_mday;
    if (end == nullptr || *end != 0 || text.size() != 10 || timegm(&date) == -1 || date.tm_mday != day)
        return bad_input("--template date={}: expected today or a day, as in date=2024-07-26", text);
    return date;
}

}  // namespace

BosEosTokens bos_eos_tokens(const Tokenizer& tokenizer) {
    return {tokenizer.token_bytes(tokenizer.bos()), tokenizer.token_bytes(tokenizer.named_eos())};
}

std::string choose_template(const std::map<std::string, std::string>& named, std::string_view where,
                            Notes& notes) {
    if (named.empty()) return {};
    if (const auto found = named.find("default"); found != named.end()) return found->second;
    std::string names;
    for (const auto& [name, text] : named) names += (names.empty() ? "" : ", ") + name;
    add_note(notes, "{}: no chat template is named default; '{}' is used{}", where, named.begin()->first,
             named.size() > 1 ? fmt::format(" (of {})", names) : "");
    return named.begin()->second;
}

Result<std::vector<std::string>> normalise_switches(std::vector<std::string> switches) {
    constexpr std::array<std::string_view, 3> given = {"messages", "tools", "documents"};
    std::string last;
    std::ranges::stable_sort(switches, {}, [](const std::string& s) { return s.substr(0, s.find('=')); });
    for (std::string& text : switches) {
        const std::size_t at = text.find('=');
        const std::string key = text.substr(0, at);
        const bool is_name = !key.empty() && std::ranges::all_of(key, is_word) && key[0] > '9';
        if (at == std::string::npos || !is_name)
            return bad_input("--template {}: expected KEY=VALUE, as in enable_thinking=false", text);
        if (std::ranges::find(given, key) != given.end())
            return bad_input("--template {}: {} come with the prompt; name another variable of the template",
                             text, key);
        if (key == last) return bad_input("--template {}: {} is given twice", text, key);
        last = key;
        if (key != date_key) continue;
        if (text == "date=today") {
            const std::time_t now = std::time(nullptr);
            std::tm today{};
            std::array<char, 16> day{};
            localtime_r(&now, &today);
            std::strftime(day.data(), day.size(), "date=%Y-%m-%d", &today);
            text = day.data();
        }
        DS_TRY(to_date(text.substr(at + 1)));
    }
    return switches;
}

ChatTemplate ChatTemplate::from_source(std::string_view source, std::string_view file, BosEosTokens tokens,
                                       Notes notes) {
    ChatTemplate out;
    out.file_ = file;
    out.tokens_ = std::move(tokens);
    out.notes_ = std::move(notes);
    if (source.find_first_not_of(" \t\r\n") == std::string_view::npos) return out;
    auto parsed = jinja::Template::parse(source);
    if (!parsed.ok()) {
        out.problem_ =
            fmt::format("{}: the chat template cannot be used ({}); use --raw to send prompts as they are",
                        file, parsed.error().message);
        return out;
    }
    out.source_ = source;
    out.template_ = std::make_shared<const jinja::Template>(std::move(parsed).value());
    out.probe();
    return out;
}

void ChatTemplate::probe() {
    const std::vector<ChatMessage> question = {{"user", std::string(user_probe)}};
    problem_.clear();
    typed_ = false;
    const auto text = render(question);
    if (contains(text, user_probe)) return;
    typed_ = true;
    if (contains(render(question), user_probe)) return;
    const std::string why = text.ok() ? fmt::format(
                                            "{}: the chat template does not write the user's text, neither "
                                            "given as a text nor as typed parts; use --raw to send "
                                            "prompts as they are",
                                            file_)
                                      : text.error().message;
    problem_ = why + ", or give a variable that it needs with --template KEY=VALUE";
}

ChatTemplate ChatTemplate::with_switches(const std::vector<std::string>& switches) const {
    ChatTemplate out = *this;
    for (const std::string& text : switches) {
        const std::size_t at = text.find('=');
        out.switches_.emplace_back(text.substr(0, at), text.substr(at + 1));
    }
    if (template_ != nullptr && !problem_.empty()) out.probe();
    return out;
}

Result<std::string> ChatTemplate::render(const std::vector<ChatMessage>& messages) const {
    if (is_raw()) {
        std::string out;
        for (const ChatMessage& message : messages) out += message.content;
        return out;
    }
    jinja::Value names = {{"add_generation_prompt", true}, {"tools", nullptr}, {"documents", nullptr}};
    for (const ChatMessage& message : messages) {
        jinja::Value content = message.content;
        if (typed_) content = jinja::List{jinja::Value{{"type", "text"}, {"text", message.content}}};
        names["messages"].push_back({{"role", message.role}, {"content", std::move(content)}});
    }
    if (!tokens_.bos.empty()) names["bos_token"] = tokens_.bos;
    if (!tokens_.eos.empty()) names["eos_token"] = tokens_.eos;
    for (const auto& [key, value] : switches_) {
        if (key != date_key) {
            names[key] = to_switch_value(value);
            continue;
        }
        DS_ASSIGN(const std::tm date, to_date(value));
        names["strftime_now"] = jinja::make_function(
            [date](const jinja::Arguments& arguments) { return jinja::format_date(date, arguments); });
    }
    auto written = template_->render(names);
    if (written.ok()) return written;
    return bad_input(
        "{}: the chat template cannot render these messages ({}); use --raw to send prompts as they are, "
        "control tokens and all",
        file_, written.error().message);
}

bool ChatTemplate::writes_date() const {
    if (!mentions(source_, "strftime_now")) return false;
    const std::vector<ChatMessage> question = {{"user", std::string(user_probe)}};
    const auto a = with_switches({"date=2001-02-03"}).render(question);
    const auto b = with_switches({"date=2014-11-26"}).render(question);
    return a.ok() && b.ok() && *a != *b;
}

Notes ChatTemplate::notes(bool has_system) const {
    Notes out = notes_;
    bool has_date = false;
    for (const auto& [key, value] : switches_) {
        has_date |= key == date_key;
        if (!mentions(source_, key == date_key ? "strftime_now" : key))
            add_note(out, "{}: --template {}={} has no effect; the chat template does not read {}", file_,
                     key, value, key == date_key ? "the date" : key);
    }
    if (!has_date && writes_date())
        add_note(out,
                 "{}: the chat template writes today's date; prompts have 26 July 2024, or what the template "
                 "falls back to, so that runs compare; choose a day with --template date=today or "
                 "date=YYYY-MM-DD",
                 file_);
    if (!has_system) return out;
    const auto text = render({{"system", std::string(system_probe)}, {"user", std::string(user_probe)}});
    if (text.ok() && !contains(text, system_probe))
        add_note(out, "{}: the chat template leaves out the system turn", file_);
    return out;
}

}  // namespace draftscope
