#include "engine/heads/factories.h"
#include "engine/heads/trimmed_head.h"

namespace draftscope {

/// VocabTrim (arXiv 2506.22694): FR-Spec's mechanism, with tokens counted in the target's own output.
Result<std::unique_ptr<LmHead>> make_vocabtrim_head(const HeadSpec& spec, const HeadFiles& artefacts) {
    return make_trimmed_head_from_ranking(spec, artefacts);
}

}  // namespace draftscope
