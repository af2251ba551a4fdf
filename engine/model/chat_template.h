#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace draftscope {

struct ChatMessage {
    std::string role;  ///< "system", "user", "assistant"
    std::string content;
};

/// What templates call bos_token and eos_token.
struct TurnTokens {
    std::string bos = "<s>", eos = "</s>";
};

class Tokenizer;
TurnTokens turn_tokens(const Tokenizer& tokenizer);

/// A model's chat format, recognised from the template text in its file (ChatML and its kin, Llama 2 and 3,
/// Qwen 3, OLMo 2, Zephyr).
class ChatTemplate {
  public:
    /// A file without a template gives the raw format: contents joined, nothing added. A template that is not
    /// recognised is an error that names what was found and points to --raw.
    static Result<ChatTemplate> from_source(std::string_view template_text, std::string_view file,
                                            TurnTokens tokens = {});
    /// The raw format of a file whose template was not recognised; `problem` is what from_source said.
    static ChatTemplate raw_because(std::string problem);

    /// Ends with the header of the assistant's turn. Encode the result with parse_special = true.
    std::string render(const std::vector<ChatMessage>& messages) const;
    /// "chatml", "llama2", "llama3", "llama3.1", "qwen3", "olmo2", "zephyr" or "raw".
    const std::string& name() const { return name_; }
    /// Not empty: the file has a template that this program does not know. To be shown unless the user asked
    /// for raw text.
    const std::string& problem() const { return problem_; }

  private:
    std::string name_ = "raw";
    std::string default_system_;
    TurnTokens tokens_;
    std::string problem_;
};

}  // namespace draftscope
