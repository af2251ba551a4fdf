#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace draftscope {
namespace jinja {
class Template;
}

struct ChatMessage {
    std::string role;  ///< "system", "user", "assistant"
    std::string content;
};

/// The template variables bos_token and eos_token. An empty string leaves the variable undefined.
struct BosEosTokens {
    std::string bos = "<s>", eos = "</s>";
};

class Tokenizer;
BosEosTokens bos_eos_tokens(const Tokenizer& tokenizer);

/// A model's chat format: the Jinja template of its file. Templates are rendered with the variables that
/// Hugging Face's libraries define (messages, add_generation_prompt, tools, bos_token, eos_token).
class ChatTemplate {
  public:
    /// Parses a template. An empty template gives the raw format, which joins the contents and adds nothing.
    /// A template that cannot render a single question is an error that names the line and suggests --raw.
    static Result<ChatTemplate> from_source(std::string_view template_text, std::string_view file,
                                            BosEosTokens tokens = {});
    /// Returns the raw format for a file whose template is unusable; `problem` is the message of
    /// from_source().
    static ChatTemplate raw_with_problem(std::string problem);

    /// Renders a prompt that ends with the header of the assistant's turn; encode it with parse_special =
    /// true. Messages that the template rejects ("roles must alternate") are an error.
    Result<std::string> render(const std::vector<ChatMessage>& messages) const;
    bool is_raw() const { return template_ == nullptr; }
    /// Why the file's template cannot be used; empty if it can. Show it unless the user requested raw text.
    const std::string& problem() const { return problem_; }

  private:
    std::shared_ptr<const jinja::Template> template_;  ///< null for the raw format
    std::string file_;
    BosEosTokens tokens_;
    std::string problem_;
};

}  // namespace draftscope
