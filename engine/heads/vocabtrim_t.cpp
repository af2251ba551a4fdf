#include "engine/heads/factories.h"
#include "engine/heads/trained_vocab.h"

namespace draftscope {

/// VocabTrim-T (named so in SlimSpec's comparison): a separate LM head for a trimmed vocabulary. It is
/// trained with the target's distribution renormalised over the kept tokens.
Result<std::unique_ptr<LmHead>> make_vocabtrim_t_head(const HeadSpec& spec, const HeadFiles& artefacts) {
    return make_trained_vocab_head(spec, artefacts);
}

}  // namespace draftscope
