#include <array>

#include "capture/head_colours.h"
#include "engine/heads/factories.h"
#include "engine/heads/head.h"

namespace draftscope {
namespace {

// The paper gives sizes per model; its best size for Llama-3-8B is a quarter of the vocabulary (32k of 128k).
constexpr HeadParam fr_spec_params[] = {
    {"v", 0, 1, 1 << 20, true, "tokens kept, most frequent first; default: a quarter of the vocabulary"},
};
// The paper's schedule is not published, except that early levels are larger and that the mean is 31,739 of
// 128k.
constexpr HeadParam pa_fr_params[] = {
    {"v", 0, 1, 1 << 20, true,
     "tokens kept per draft level, the last value for all deeper levels, "
     "16384/8192; default: a half, a quarter and an eighth of the vocabulary",
     true},
};
// FR-Spec's default size, so that the two heads differ in their rankings only.
constexpr HeadParam vocabtrim_params[] = {
    {"v", 0, 1, 1 << 20, true, "tokens kept, most frequent first; default: a quarter of the vocabulary"},
};
// Default of the published command line; the cost in bytes is ours.
constexpr HeadParam bcl_params[] = {
    {"alpha", 0.5, 0, 1, false, "weight of coverage against cost when solving for the size"},
    {"bytes", 0, 0, 1, true, "1: cost in bytes moved instead of the paper's FLOPs"},
};
// Fitting determines these parameters; a given size must match the artefact.
constexpr HeadParam vocabtrim_t_params[] = {
    {"v", 0, 1, 1 << 20, true, "tokens kept; default: as many as the artefact has"},
};
constexpr HeadParam slimspec_params[] = {
    {"rank", 0, 1, 1 << 20, false,
     "rank of the head, or of its W_down per draft level (72/36); default: the artefact's (the paper: d/8)",
     true},
};
constexpr HeadParam share_param = {"share",
                                   0,
                                   0,
                                   0,
                                   true,
                                   "how rows of a level read tokens they share: once "
                                   "(union) or each row separately; the results are equal",
                                   false,
                                   "union|per-row"};
// The paper only states the router's shape. Groups, their number and how many are read are not confirmed.
constexpr HeadParam coral_params[] = {
    {"groups", 0, 1, 1 << 16, true, "groups of the vocabulary; default: the artefact's (16)"},
    {"active", 0, 1, 1 << 16, true, "groups read per row; default: a quarter"},
    share_param,
};
// The paper keeps the full budget for two steps, then decays it to a minimum. The text that we have lacks its
// formula and numbers.
constexpr HeadParam dynaspec_params[] = {
    {"clusters", 0, 1, 1 << 16, true, "clusters of the vocabulary; default: the artefact's"},
    {"r", 0, 1, 1 << 16, true, "width of the router; default: the artefact's"},
    {"kmax", 0, 1, 1 << 16, true, "clusters per row at the first draft steps; default: a quarter"},
    {"kmin", 0, 1, 1 << 16, true, "minimum of clusters per row; default: a sixteenth"},
    {"flat", 2, 0, 64, false, "draft steps with all kmax clusters"},
    {"decay", 0.7, 0, 1, true, "factor by which each later step reduces the budget"},
    share_param,
};
constexpr HeadParam specvocab_params[] = {
    {"rank", 0, 1, 1 << 20, false,
     "rank of the speculator, or of its W_down per draft "
     "level; default: the artefact's (the paper: d/8, d/16)",
     true},
    {"k", 2048, 1, 1 << 20, false, "candidates per row, or a list per draft level (2048/1024)", true},
    share_param,
};
constexpr HeadParam microspec_params[] = {
    {"wmax", 3072, 1, 1 << 20, false, "window over the candidate stream, in tokens"},
    {"kpre", 3, 0, 64, false, "the target's best tokens taken at each prompt position"},
    {"kver", 3, 0, 64, false, "the target's best tokens taken at each verified position"},
    {"source", 0, 0, 0, false, "candidates from the prompt (ctx), from the rounds (ext), or both", false,
     "both|ctx|ext"},
    {"gather", 0, 0, 0, false,
     "rows are packed while the backbone runs (async), before the first "
     "head call of a round (sync), or read in place by every call (indexed)",
     false, "async|sync|indexed"},
    // The paper's text says "on the validated branch"; its Algorithm 1 takes all logits.
    {"branch", 0, 0, 0, true,
     "verified positions: the whole accepted path, its "
     "last node, or every node of the tree (not replayable)",
     false, "path|last|tree"},
    // Equation 4 windows the raw stream; section 3.3 speaks of new unique tokens.
    {"stream", 0, 0, 0, true,
     "appended to the stream: all candidates of a round, or only those not yet active", false, "all|new"},
    {"prompt", 0, 0, 0, true, "the prompt's tokens enter the window before its candidates, or after them",
     false, "first|last"},
    {"bonus", 0, 0, 0, true, "the round's last token is also appended", false, "no|yes"},
    {"eos", 0, 0, 0, true, "tokens that end the text are always active", false, "no|yes"},
};
constexpr HeadParam oracle_params[] = {
    {"m", 32, 1, 32, true,
     "the target's best tokens at each position, "
     "limited by those that a recording holds"},
};

const std::array<HeadInfo, 12> heads = {{
    {"full",
     "Full",
     "the drafter's LM head, as in EAGLE-2 (arXiv 2406.16858)",
     {},
     RequiredFile::none,
     "",
     head_colour("full"),
     make_full_head},
    {"fr-spec", "FR-Spec", "FR-Spec, arXiv 2502.14856", fr_spec_params, RequiredFile::ranking,
     "token ranking from raw text (safetensors with 'ids')", head_colour("fr-spec"), make_fr_spec_head},
    {"pa-fr", "PA-FR", "DynaSpec, arXiv 2510.13847, appendix A.1", pa_fr_params, RequiredFile::ranking,
     "token ranking (safetensors with 'ids')", head_colour("pa-fr"), make_pa_fr_head},
    {"vocabtrim", "VocabTrim", "VocabTrim, arXiv 2506.22694", vocabtrim_params, RequiredFile::ranking,
     "token ranking from the target's generations (safetensors with 'ids')", head_colour("vocabtrim"),
     make_vocabtrim_head},
    {"vocabtrim-t", "VocabTrim-T", "VocabTrim trained, as in SlimSpec, arXiv 2605.10453", vocabtrim_t_params,
     RequiredFile::fitted, "trained trimmed head", head_colour("vocabtrim-t"), make_vocabtrim_t_head},
    {"bcl", "BCL", "BCL, arXiv 2603.05210", bcl_params, RequiredFile::either,
     "token ranking from assistant text (safetensors with 'ids' and 'counts'), or a trained trimmed head",
     head_colour("bcl"), make_bcl_head},
    {"coral", "CORAL", "CORAL, arXiv 2502.16880", coral_params, RequiredFile::fitted,
     "groups of the vocabulary and a router", head_colour("coral"), make_coral_head},
    {"dynaspec", "DynaSpec", "DynaSpec, arXiv 2510.13847", dynaspec_params, RequiredFile::fitted,
     "clusters of the vocabulary and a router", head_colour("dynaspec"), make_dynaspec_head},
    {"specvocab", "SpecVocab", "SpecVocab, arXiv 2602.13836", specvocab_params, RequiredFile::fitted,
     "low-rank speculator", head_colour("specvocab"), make_specvocab_head},
    {"slimspec", "SlimSpec", "SlimSpec, arXiv 2605.10453", slimspec_params, RequiredFile::fitted,
     "low-rank head", head_colour("slimspec"), make_slimspec_head},
    {"microspec", "MicroSpec", "MicroSpec, arXiv 2605.26444, Algorithm 1", microspec_params,
     RequiredFile::none, "", head_colour("microspec"), make_microspec_head},
    {"oracle", "Oracle (what-if)", "DynaSpec, arXiv 2510.13847, lemma 2: the target's best m tokens",
     oracle_params, RequiredFile::none, "", head_colour("oracle"), make_oracle_head, true},
}};

}  // namespace

std::span<const HeadInfo> head_registry() {
    return heads;
}

}  // namespace draftscope
