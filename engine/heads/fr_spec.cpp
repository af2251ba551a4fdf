#include "engine/heads/factories.h"
#include "engine/heads/trimmed_head.h"

namespace draftscope {

/// FR-Spec (arXiv 2502.14856, section 3.2): the LM head trimmed to the most frequent tokens of raw text.
Result<std::unique_ptr<LmHead>> make_fr_spec_head(const HeadSpec& spec, const HeadFiles& artefacts) {
    return make_trimmed_head_from_ranking(spec, artefacts);
}

}  // namespace draftscope
