#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "capture/record.h"
#include "engine/tokenizer/tokenizer.h"

namespace draftscope {

struct RoundsOptions;

/// A target's tokens with text and, if a ranking is known, frequency rank and count.
struct Vocabulary {
    std::shared_ptr<const Vocab> vocab;
    std::vector<std::optional<int>> ranks;  ///< per token id; empty without a ranking
    std::string ranking;                    ///< what it was counted on, else its file's name; "" = none
};
/// Builds the vocabulary. `ranking_path` "" = none. A ranking for another tokenizer is bad_input: its ids
/// denote other tokens.
Result<Vocabulary> make_vocabulary(const Tokenizer& tokenizer, const std::string& ranking_path, RowId id);
/// Gives an import the tokens of a target, a GGUF file or folder, and a ranking's order of them; "" = none.
Status load_vocabulary(const std::string& model, const std::string& ranking, RowId id,
                       RoundsOptions& options);

}  // namespace draftscope
