#include <algorithm>

#include "engine/heads/factories.h"
#include "engine/heads/synthetic_artefact.h"
#include "engine/heads/trained_vocab.h"

namespace draftscope {
namespace {

// Fitting determines these parameters; a given size must match the artefact.
constexpr HeadParam vocabtrim_t_params[] = {
    {"v", 0, 1, 1 << 20, true, "tokens kept; default: as many as its file has"},
    eos_param,
    softmax_param,
};

/// VocabTrim-T (named so in SlimSpec's comparison): a separate LM head for a trimmed vocabulary. It is
/// trained with the target's distribution renormalised over the kept tokens.
Result<std::unique_ptr<LmHead>> make_vocabtrim_t(const HeadSpec& spec, const HeadFiles& artefacts) {
    return make_trained_vocab_head(spec, artefacts);
}

/// Adds tokens spread evenly over the vocabulary.
Status synthesize_vocabtrim_t(SyntheticBuilder& builder) {
    const int tokens = builder.shape.tokens;
    DS_ASSIGN(const int size, whole_param(builder.spec, "v", std::max(1, tokens / 4 / 64 * 64)));
    if (size > tokens)
        return bad_input("head {}: v={} does not fit the target, which has {} tokens", builder.spec.id, size,
                         tokens);
    std::vector<std::int64_t> ids;
    for (std::int64_t i = 0; i < size; ++i) ids.push_back(i * tokens / size);
    builder.integers["ids"] = std::move(ids);
    builder.matrices.push_back({"weight", {size, builder.shape.hidden}});
    builder.info.parameters["v"] = std::to_string(size);
    return {};
}

}  // namespace

HeadInfo describe_vocabtrim_t() {
    return {.id = "vocabtrim-t",
            .name = "VocabTrim-T",
            .paper = "VocabTrim trained, as in SlimSpec, arXiv 2605.10453",
            .params = vocabtrim_t_params,
            .size = {.name = "v",
                     .unit = HeadSizeParam::Unit::vocab,
                     .values = {1.0 / 16, 1.0 / 8, 1.0 / 4, 1.0 / 2}},
            .rgb = 0x8FCBEB,
            .required_file = RequiredFile::fitted,
            .artefact = "trained trimmed head",
            .fit = {.kinds = FitRecipe::kept_rows},
            .synthesize = synthesize_vocabtrim_t,
            .make = make_vocabtrim_t};
}

}  // namespace draftscope
