#pragma once

#include <string>

#include "base/notes.h"
#include "base/result.h"
#include "engine/tokenizer/tokenizer.h"

namespace draftscope {

/// A model's vocabulary, to compare with another's.
struct ModelVocabulary {
    std::string path;                      ///< of the model, for messages
    const Tokenizer* tokenizer = nullptr;  ///< null = only `rows` is known
    int rows = 0;                          ///< of its LM head
};

/// Checks that a draft model's tokens mean the same to the target. Both must have equal texts of all common
/// ids, and special tokens that agree. Further ids of one of them are allowed, and are a note.
Status check_vocabularies(const ModelVocabulary& draft, const ModelVocabulary& target, Notes& notes);

}  // namespace draftscope
