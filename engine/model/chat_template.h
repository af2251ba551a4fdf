#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/model/jinja/template.h"

namespace draftscope {

struct ChatMessage {
    std::string role;  ///< "system", "user", "assistant"
    std::string content;
};

/// What templates call bos_token and eos_token; an empty one is undefined to them.
struct TurnTokens {
    std::string bos = "<s>", eos = "</s>";
};

class Tokenizer;
TurnTokens turn_tokens(const Tokenizer& tokenizer);

/// A model's chat format: the Jinja template of its file, with the names that Hugging Face's libraries give
/// it (messages, add_generation_prompt, tools, bos_token, eos_token).
class ChatTemplate {
  public:
    /// A file without a template gives the raw format: contents joined, nothing added. A template that cannot
    /// be used, even for one question, is an error that names the line and points to --raw.
    static Result<ChatTemplate> from_source(std::string_view template_text, std::string_view file,
                                            TurnTokens tokens = {});
    /// The raw format of a file whose template cannot be used; `problem` is what from_source said.
    static ChatTemplate raw_because(std::string problem);

    /// Ends with the header of the assistant's turn. Encode the result with parse_special = true. An error is
    /// what the template has against these messages ("roles must alternate").
    Result<std::string> render(const std::vector<ChatMessage>& messages) const;
    bool is_raw() const { return !template_.has_value(); }
    /// Not empty: the file has a template that this program cannot use. To be shown unless the user asked for
    /// raw text.
    const std::string& problem() const { return problem_; }

  private:
    std::optional<jinja::Template> template_;
    std::string file_;
    TurnTokens tokens_;
    std::string problem_;
};

}  // namespace draftscope
