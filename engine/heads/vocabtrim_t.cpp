#include "engine/heads/factories.h"
#include "engine/heads/trained_vocab.h"

namespace draftscope {

/// VocabTrim-T (as SlimSpec's comparison names it): a head of its own for a trimmed vocabulary, trained with
/// the target's distribution renormalised over the kept tokens.
Result<std::unique_ptr<Head>> make_vocabtrim_t_head(const HeadSpec& spec, const HeadArtefacts& artefacts) {
    return make_trained_vocab_head(spec, artefacts);
}

}  // namespace draftscope
