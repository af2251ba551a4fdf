#include <array>

#include "engine/heads/factories.h"
#include "engine/heads/head.h"

namespace draftscope {
namespace {

// The paper gives sizes per model; a quarter of the vocabulary is its best size for Llama-3-8B (32k of 128k).
constexpr HeadParam fr_spec_params[] = {
    {"v", 0, 1, 1 << 20, true, "tokens kept, most frequent first; left out: a quarter of the vocabulary"},
};
// The paper's schedule is not published: only that early levels get more and that its mean is 31,739 of 128k.
constexpr HeadParam pa_fr_params[] = {
    {"v", 0, 1, 1 << 20, true,
     "tokens kept per draft level, the last for all deeper ones, 16384/8192; left out: a half, a quarter and "
     "an eighth of the vocabulary",
     true},
};
// FR-Spec's default size, so that the two differ in their rankings only.
constexpr HeadParam vocabtrim_params[] = {
    {"v", 0, 1, 1 << 20, true, "tokens kept, most frequent first; left out: a quarter of the vocabulary"},
};
// Default of the published command line; the byte-weighted cost is ours.
constexpr HeadParam bcl_params[] = {
    {"alpha", 0.5, 0, 1, false, "weight of coverage against cost when the size is solved"},
    {"bytes", 0, 0, 1, true, "1: cost in bytes moved instead of the paper's FLOPs"},
};
constexpr HeadParam microspec_params[] = {
    {"wmax", 3072, 1, 1 << 20, false, "window over the candidate stream, in tokens"},
    {"kpre", 3, 0, 64, false, "the target's best tokens taken at each prompt position"},
    {"kver", 3, 0, 64, false, "the target's best tokens taken at each verified position"},
    {"source", 0, 0, 0, false, "candidates: of the prompt (ctx), of the rounds (ext), or both", false,
     "both|ctx|ext"},
    // The paper says "on the validated branch" in its text and takes all logits in Algorithm 1.
    {"branch", 0, 0, 0, true, "verified positions: the whole accepted path, or its last node", false,
     "path|last"},
    // The paper packs beside the backbone, on a copy stream.
    {"gather", 0, 0, 0, true, "sync: rows are packed before the first head call of a round", false, "sync"},
};

const std::array<HeadInfo, 6> heads = {{
    {"full",
     "Full",
     "the drafter's own head, as in EAGLE-2 (arXiv 2406.16858)",
     {},
     "",
     0x999999,
     make_full_head},
    {"fr-spec", "FR-Spec", "FR-Spec, arXiv 2502.14856", fr_spec_params,
     "token ranking from raw text (safetensors with `ids`)", 0xE69F00, make_fr_spec_head},
    {"pa-fr", "PA-FR", "DynaSpec, arXiv 2510.13847, appendix A.1", pa_fr_params,
     "token ranking (safetensors with `ids`)", 0x4C9FD1, make_pa_fr_head},
    {"vocabtrim", "VocabTrim", "VocabTrim, arXiv 2506.22694", vocabtrim_params,
     "token ranking from the target's own generations (safetensors with `ids`)", 0x56B4E9,
     make_vocabtrim_head},
    {"bcl", "BCL (post-hoc)", "BCL, arXiv 2603.05210", bcl_params,
     "token ranking from assistant text (safetensors with `ids` and `counts`)", 0xC9BE2C, make_bcl_head},
    {"microspec", "MicroSpec", "MicroSpec, arXiv 2605.26444, Algorithm 1", microspec_params, "", 0xCC79A7,
     make_microspec_head},
}};

}  // namespace

std::span<const HeadInfo> head_registry() {
    return heads;
}

}  // namespace draftscope
