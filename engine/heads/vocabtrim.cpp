#include "engine/heads/factories.h"
#include "engine/heads/trimmed_head.h"

namespace draftscope {
namespace {

// FR-Spec's default size, so that the two heads differ in their rankings only.
constexpr HeadParam vocabtrim_params[] = {
    {"v", 0, 1, 1 << 20, true, "tokens kept, most frequent first; default: a quarter of the vocabulary"},
    eos_param,
    softmax_param,
};

/// VocabTrim (arXiv 2506.22694): FR-Spec's mechanism, with tokens counted in the target's own output.
Result<std::unique_ptr<LmHead>> make_vocabtrim(const HeadSpec& spec, const HeadFiles& artefacts) {
    return make_trimmed_head_from_ranking(spec, artefacts);
}

}  // namespace

HeadInfo describe_vocabtrim() {
    return {.id = "vocabtrim",
            .name = "VocabTrim",
            .paper = "VocabTrim, arXiv 2506.22694",
            .params = vocabtrim_params,
            .size = {.name = "v",
                     .unit = HeadSizeParam::Unit::vocab,
                     .values = {1.0 / 16, 1.0 / 8, 1.0 / 4, 1.0 / 2},
                     .default_parts = 4},
            .rgb = 0x56B4E9,
            .required_file = RequiredFile::ranking,
            .artefact = "token ranking from the target's generations (safetensors with 'ids')",
            .fit = {.kinds = FitRecipe::generations},
            .make = make_vocabtrim};
}

}  // namespace draftscope
