#pragma once

#include <memory>

#include "base/notes.h"
#include "base/result.h"
#include "engine/draft/drafter.h"
#include "engine/transformer/target.h"

namespace draftscope {

/// Creates the drafter of a causal language model that drafts for another, the target (arXiv 2211.17192). Its
/// trees are those of EAGLE-2, its LM head is its own. Both models are on one backend. Vocabularies that
/// differ are an error. `notes` are of its files.
Result<std::unique_ptr<Drafter>> make_draft_model_drafter(std::unique_ptr<Target> model, const Target& target,
                                                          Notes notes = {});

}  // namespace draftscope
