#include "engine/heads/factories.h"
#include "engine/heads/trimmed_head.h"

namespace draftscope {
namespace {

// The paper gives sizes per model; its best size for Llama-3-8B is a quarter of the vocabulary (32k of 128k).
constexpr HeadParam fr_spec_params[] = {
    {"v", 0, 1, 1 << 20, true, "tokens kept, most frequent first; default: a quarter of the vocabulary"},
    eos_param,
    softmax_param,
};

/// FR-Spec (arXiv 2502.14856, section 3.2): the LM head trimmed to the most frequent tokens of raw text.
Result<std::unique_ptr<LmHead>> make_fr_spec(const HeadSpec& spec, const HeadFiles& artefacts) {
    return make_trimmed_head_from_ranking(spec, artefacts);
}

}  // namespace

HeadInfo describe_fr_spec() {
    return {.id = "fr-spec",
            .name = "FR-Spec",
            .paper = "FR-Spec, arXiv 2502.14856",
            .params = fr_spec_params,
            .size = {.name = "v",
                     .unit = HeadSizeParam::Unit::vocab,
                     .values = {1.0 / 16, 1.0 / 8, 1.0 / 4, 1.0 / 2},
                     .default_parts = 4},
            .rgb = 0x0072B2,
            .required_file = RequiredFile::ranking,
            .artefact = "token ranking from raw text (safetensors with 'ids')",
            .fit = {.kinds = FitRecipe::raw_text},
            .make = make_fr_spec};
}

}  // namespace draftscope
