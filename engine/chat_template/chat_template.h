#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/notes.h"
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

/// Returns the template named "default", else another; a choice or the absence of the default is noted.
/// `where` names the file, for messages.
std::string choose_template(const std::map<std::string, std::string>& named, std::string_view where,
                            Notes& notes);

/// Returns switches of --template, KEY=VALUE each, sorted by key and with "today" as a date. A malformed or
/// repeated one is bad_input.
Result<std::vector<std::string>> normalise_switches(std::vector<std::string> switches);

/// A model's chat format: the Jinja template of its file. Templates are rendered with the variables that
/// Hugging Face's libraries define (messages, add_generation_prompt, tools, bos_token, eos_token). Contents
/// are texts, or lists of typed parts if the template writes only those.
class ChatTemplate {
  public:
    /// Parses a template. An empty template gives the raw format, which joins the contents and adds nothing.
    /// So does one that does not write the text of a single question; problem() then says why.
    static ChatTemplate from_source(std::string_view template_text, std::string_view file,
                                    BosEosTokens tokens = {}, Notes notes = {});
    /// Returns the template with further variables; `switches` are those of normalise_switches(). The
    /// variable `date` is the day that strftime_now() writes. Switches may remove the problem().
    ChatTemplate with_switches(const std::vector<std::string>& switches) const;

    /// Renders a prompt that ends with the header of the assistant's turn; encode it with parse_special =
    /// true. Messages that the template rejects ("roles must alternate") are an error.
    Result<std::string> render(const std::vector<ChatMessage>& messages) const;
    bool is_raw() const { return template_ == nullptr || !problem_.empty(); }
    /// Why the file's template cannot be used; empty if it can. Show it unless the user requested raw text.
    const std::string& problem() const { return problem_; }
    /// Returns what was chosen or is odd: other templates, unused switches, a date, a lost system turn.
    Notes notes(bool has_system) const;

  private:
    /// Renders a question; sets typed_ and problem_.
    void probe();
    bool writes_date() const;

    std::shared_ptr<const jinja::Template> template_;  ///< null without a template that parses
    std::string source_, file_;
    BosEosTokens tokens_;
    Notes notes_;
    bool typed_ = false;                                         ///< contents are lists of parts
    std::vector<std::pair<std::string, std::string>> switches_;  ///< values as JSON
    std::string problem_;
};

}  // namespace draftscope
