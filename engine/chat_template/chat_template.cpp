#include "engine/chat_template/chat_template.h"

#include <utility>

#include "engine/chat_template/template.h"
#include "engine/tokenizer/tokenizer.h"

namespace draftscope {

BosEosTokens bos_eos_tokens(const Tokenizer& tokenizer) {
    return {tokenizer.token_bytes(tokenizer.bos()), tokenizer.token_bytes(tokenizer.named_eos())};
}

Result<ChatTemplate> ChatTemplate::from_source(std::string_view source, std::string_view file,
                                               BosEosTokens tokens) {
    ChatTemplate out;
    out.file_ = file;
    out.tokens_ = std::move(tokens);
    if (source.find_first_not_of(" \t\r\n") == std::string_view::npos) return out;
    auto parsed = jinja::Template::parse(source);
    if (!parsed.ok()) {
        return bad_input("{}: the chat template cannot be used ({}); use --raw to send prompts as they are",
                         file, parsed.error().message);
    }
    out.template_ = std::make_shared<const jinja::Template>(std::move(parsed).value());
    DS_TRY(out.render({{"user", "Hello"}}));
    return out;
}

ChatTemplate ChatTemplate::raw_with_problem(std::string problem) {
    ChatTemplate out;
    out.problem_ = std::move(problem);
    return out;
}

Result<std::string> ChatTemplate::render(const std::vector<ChatMessage>& messages) const {
    if (is_raw()) {
        std::string out;
        for (const ChatMessage& message : messages) out += message.content;
        return out;
    }
    jinja::Value names = {{"add_generation_prompt", true}, {"tools", nullptr}, {"documents", nullptr}};
    for (const ChatMessage& message : messages)
        names["messages"].push_back({{"role", message.role}, {"content", message.content}});
    if (!tokens_.bos.empty()) names["bos_token"] = tokens_.bos;
    if (!tokens_.eos.empty()) names["eos_token"] = tokens_.eos;
    auto written = template_->render(names);
    if (written.ok()) return written;
    return bad_input(
        "{}: the chat template cannot render these messages ({}); use --raw to send prompts as they are, "
        "control tokens and all",
        file_, written.error().message);
}

}  // namespace draftscope
