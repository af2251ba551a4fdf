#include "engine/model/chat_template.h"

#include <initializer_list>
#include <optional>
#include <utility>

#include "engine/model/mapped_file.h"
#include "engine/model/tokenizer.h"
#include "engine/model/utf8.h"

// A file's template is a Jinja program. The few that matter are recognised by their marks and rendered by
// hand; one with marks that change the rendering in ways unknown here is refused rather than rendered
// wrongly.
namespace draftscope {
namespace {

bool contains(std::string_view text, std::string_view what) {
    return text.find(what) != std::string_view::npos;
}

std::optional<std::string_view> first_of(std::string_view text,
                                         std::initializer_list<std::string_view> marks) {
    for (const std::string_view mark : marks) {
        if (contains(text, mark)) return mark;
    }
    return std::nullopt;
}

/// A Jinja string's inside with its escapes resolved; nothing when it is not one literal (a quote or a brace
/// stands in it).
std::optional<std::string> literal(std::string_view text) {
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        if (c == '\'' || c == '"' || c == '{' || c == '}') return std::nullopt;
        if (c != '\\' || i + 1 == text.size()) {
            out += c;
            continue;
        }
        const char escaped = text[++i];
        out += escaped == 'n' ? '\n' : escaped == 't' ? '\t' : escaped;
    }
    return out;
}

/// The system message that a ChatML template writes when the conversation brings none; nothing when it has
/// none.
std::optional<std::string> default_system_message(std::string_view source) {
    constexpr std::string_view header = "<|im_start|>system";
    constexpr std::string_view footer = "<|im_end|>";
    for (std::size_t at = source.find(header); at != std::string_view::npos;
         at = source.find(header, at + 1)) {
        const std::size_t begin = at + header.size();
        const std::size_t end = source.find(footer, begin);
        if (end == std::string_view::npos) break;
        const auto body = literal(source.substr(begin, end - begin));
        if (body && body->starts_with('\n')) return body->substr(1);
    }
    return std::nullopt;
}

/// What Python's str.strip (Jinja's trim) takes away.
bool is_space(char32_t c) {
    return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
           c == 0x3000;
}

std::string trimmed(std::string_view text) {
    std::size_t begin = std::string_view::npos;
    std::size_t end = 0;
    for (std::size_t at = 0; at < text.size();) {
        const Utf8Unit unit = next_utf8(text.substr(at));
        if (unit.kind != Utf8Unit::Kind::character || !is_space(unit.character)) {
            if (begin == std::string_view::npos) begin = at;
            end = at + unit.length;
        }
        at += unit.length;
    }
    return begin == std::string_view::npos ? std::string() : std::string(text.substr(begin, end - begin));
}

bool starts_with_bos(std::string_view source) {
    return trimmed(source).starts_with("{{ bos_token }}");
}

bool starts_with_system(const std::vector<ChatMessage>& messages) {
    return !messages.empty() && messages.front().role == "system";
}

std::string render_chatml(const std::vector<ChatMessage>& messages, const std::string& default_system) {
    std::string out;
    const auto turn = [&](const std::string& role, const std::string& content) {
        out += "<|im_start|>" + role + "\n" + content + "<|im_end|>\n";
    };
    if (!messages.empty() && !starts_with_system(messages) && !default_system.empty())
        turn("system", default_system);
    for (const ChatMessage& message : messages) turn(message.role, message.content);
    return out + "<|im_start|>assistant\n";
}

/// Answers of earlier turns go back without what was thought before them.
std::string render_qwen3(std::vector<ChatMessage> messages) {
    constexpr std::string_view end_of_thought = "</think>";
    for (ChatMessage& message : messages) {
        const std::size_t cut = message.content.rfind(end_of_thought);
        if (message.role != "assistant" || cut == std::string::npos) continue;
        message.content.erase(0, cut + end_of_thought.size());
        message.content.erase(0, message.content.find_first_not_of('\n'));
    }
    return render_chatml(messages, "");
}

/// Roles are plain text; only the end of an answer is a control token, which also begins the text.
std::string render_olmo2(const std::vector<ChatMessage>& messages) {
    constexpr std::string_view end = "<|endoftext|>";
    std::string out(messages.empty() ? "" : end);
    for (const ChatMessage& message : messages) {
        out += "<|" + message.role + "|>\n" + message.content;
        if (message.role == "assistant") out += end;
        out += '\n';
    }
    return out + "<|assistant|>\n";
}

std::string llama3_header(const std::string& role) {
    return "<|start_header_id|>" + role + "<|end_header_id|>\n\n";
}

std::string render_llama3(const std::vector<ChatMessage>& messages) {
    std::string out = messages.empty() ? "" : "<|begin_of_text|>";
    for (const ChatMessage& message : messages)
        out += llama3_header(message.role) + trimmed(message.content) + "<|eot_id|>";
    return out + llama3_header("assistant");
}

/// Writes a system turn in any case, with two dates. Today's would make every day's prompt another one, so
/// the template's own fallback is used.
std::string render_llama31(const std::vector<ChatMessage>& messages) {
    std::string out = "<|begin_of_text|>" + llama3_header("system") +
                      "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n";
    const std::size_t first = starts_with_system(messages) ? 1 : 0;
    if (first == 1) out += trimmed(messages.front().content);
    out += "<|eot_id|>";
    for (std::size_t i = first; i < messages.size(); ++i)
        out += llama3_header(messages[i].role) + trimmed(messages[i].content) + "<|eot_id|>";
    return out + llama3_header("assistant");
}

/// Zephyr's kin (TinyLlama): plain text roles, every turn ends with the end-of-text token.
std::string render_zephyr(const std::vector<ChatMessage>& messages, const TurnTokens& tokens) {
    std::string out;
    if (messages.empty()) return out;
    for (const ChatMessage& message : messages)
        out += "<|" + message.role + "|>\n" + message.content + tokens.eos + "\n";
    return out + "<|assistant|>\n";
}

/// Each question begins a text of its own; a system message stands inside the first one.
std::string render_llama2(const std::vector<ChatMessage>& messages, const TurnTokens& tokens) {
    std::string out, system;
    for (const ChatMessage& message : messages) {
        if (message.role == "system") {
            system.assign("<<SYS>>\n").append(message.content).append("\n<</SYS>>\n\n");
        } else if (message.role == "user") {
            out.append(tokens.bos).append("[INST] ").append(trimmed(system + message.content));
            out.append(" [/INST]");
            system.clear();
        } else {
            out.append(" ").append(trimmed(message.content)).append(" ").append(tokens.eos);
        }
    }
    return out;
}

bool is_zephyr(std::string_view source) {
    return first_of(source, {"'<|user|>\\n' + message['content'] + eos_token }}\n",
                             "'<|user|>\n' + message['content'] + eos_token }}\n"}) &&
           contains(source, "{{ '<|assistant|>' }}\n");
}

bool is_llama2(std::string_view source) {
    return contains(source, "bos_token + '[INST] ' + content.strip() + ' [/INST]'") &&
           contains(source, "<<SYS>>") && contains(source, "content.strip() + ' ' + eos_token");
}

Error unknown(std::string_view file, std::string_view source, std::string_view why) {
    return bad_input(
        "{}: the chat template is not recognised ({}); use --raw to send prompts as they are. It "
        "starts with: {}",
        file, why, printable(source));
}

}  // namespace

TurnTokens turn_tokens(const Tokenizer& tokenizer) {
    const TokenId eos = tokenizer.eos().empty() ? no_token : tokenizer.eos().front();
    return {tokenizer.token_bytes(tokenizer.bos()), tokenizer.token_bytes(eos)};
}

Result<ChatTemplate> ChatTemplate::from_source(std::string_view source, std::string_view file,
                                               TurnTokens tokens) {
    ChatTemplate out;
    out.tokens_ = std::move(tokens);
    if (trimmed(source).empty()) return out;
    if (contains(source, "<|im_start|>")) {
        if (!contains(source, "<|im_start|>assistant") || !contains(source, "<|im_end|>"))
            return unknown(file, source, "ChatML without an assistant's turn");
        if (contains(source, "enable_thinking") && contains(source, "last_query_index") &&
            contains(source, "</think>")) {
            out.name_ = "qwen3";
            return out;
        }
        if (const auto mark =
                first_of(source, {"trim", "strip(", "<think>", "system_message", "raise_exception"}))
            return unknown(file, source, fmt::format("ChatML with '{}'", *mark));
        const auto system = default_system_message(source);
        if (system && !first_of(source, {"!= 'system'", "== 'system'", "!= \"system\"", "== \"system\""}))
            return unknown(file, source, "ChatML with a fixed system message");
        out.name_ = "chatml";
        out.default_system_ = system.value_or("");
        return out;
    }
    if (contains(source, "<|start_header_id|>")) {
        if (!contains(source, "<|eot_id|>") || !contains(source, "trim"))
            return unknown(file, source, "Llama 3 without <|eot_id|> or trim");
        out.name_ = contains(source, "Cutting Knowledge Date") ? "llama3.1" : "llama3";
        return out;
    }
    // Others write <|user|> too, but end every turn with a control token.
    if (starts_with_bos(source) && first_of(source, {"'<|user|>\\n' + message['content'] + '\\n'",
                                                     "'<|user|>\n' + message['content'] + '\n'"})) {
        out.name_ = "olmo2";
        return out;
    }
    if (is_zephyr(source) || is_llama2(source)) {
        out.name_ = is_zephyr(source) ? "zephyr" : "llama2";
        return out;
    }
    return unknown(file, source, "neither ChatML, Llama 2, Llama 3, Qwen 3, OLMo 2 nor Zephyr");
}

ChatTemplate ChatTemplate::raw_because(std::string problem) {
    ChatTemplate out;
    out.problem_ = std::move(problem);
    return out;
}

std::string ChatTemplate::render(const std::vector<ChatMessage>& messages) const {
    if (name_ == "chatml") return render_chatml(messages, default_system_);
    if (name_ == "qwen3") return render_qwen3(messages);
    if (name_ == "olmo2") return render_olmo2(messages);
    if (name_ == "llama3") return render_llama3(messages);
    if (name_ == "llama3.1") return render_llama31(messages);
    if (name_ == "llama2") return render_llama2(messages, tokens_);
    if (name_ == "zephyr") return render_zephyr(messages, tokens_);
    std::string out;
    for (const ChatMessage& message : messages) out += message.content;
    return out;
}

}  // namespace draftscope
