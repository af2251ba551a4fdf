#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/job_hooks.h"
#include "base/notes.h"
#include "engine/recording/record_decode.h"

namespace draftscope {

/// Texts that a target is to follow: the committed ids of another engine, or of an earlier run.
struct GivenTexts {
    std::vector<PromptInput> prompts;   ///< numbered in the order of the file
    std::map<int, GivenText> texts;     ///< by the prompt's ordinal
    std::map<int, std::string> hashes;  ///< prompt_hash() by ordinal; "" = unknown
    Sampling sampling;                  ///< with which the file says they were decoded
    bool raw = false;                   ///< no chat template was used
    std::vector<std::string> template_switches;
    int refused = 0;  ///< prompts without usable tokens
    Notes notes;      ///< which were refused or cut, and what was assumed

    int longest() const;
};

/// A part of one text: what came before it becomes the prompt.
struct GivenPart {
    RowId run_id = 0, prompt_id = 0;  ///< in the file
    int from = 0;                     ///< tokens of prompt and text before the part; at least the prompt's
    int tokens = 0;                   ///< at most so many
};

/// Reads the newest run of a capture, or a file that `import` reads. Prompts are the file's ids; without them
/// its text, tokenised as it is, or by the chat template if draftscope decoded it. Its number of tokens must
/// be the file's. With `part`, only this part of one text. An id outside the vocabulary, another tokenizer,
/// or a file without any usable prompt is bad_input.
Result<GivenTexts> read_given_texts(const std::string& path, const Target& target,
                                    const std::optional<GivenPart>& part = {});

/// Supplies the prompts of given texts.
class GivenFeed final : public PromptFeed {
  public:
    /// Both must outlive the feed.
    GivenFeed(const GivenTexts& given, const JobHooks& hooks) : given_(given), hooks_(hooks) {}
    std::optional<PromptInput> next() override;
    void done(const PromptInput&, PromptOutcome) override {}

  private:
    const GivenTexts& given_;
    const JobHooks& hooks_;
    std::size_t begun_ = 0;
};

}  // namespace draftscope
