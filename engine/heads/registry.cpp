#include <array>

#include "engine/heads/factories.h"
#include "engine/heads/head.h"

namespace draftscope {
namespace {

// The paper gives sizes per model; a quarter of the vocabulary is its best size for Llama-3-8B (32k of 128k).
constexpr HeadParam fr_spec_params[] = {
    {"v", 0, 1, 1 << 20, true, "tokens kept, most frequent first; left out: a quarter of the vocabulary"},
};

const std::array<HeadInfo, 2> heads = {{
    {"full",
     "Full",
     "the drafter's own head, as in EAGLE-2 (arXiv 2406.16858)",
     {},
     "",
     0x999999,
     make_full_head},
    {"fr-spec", "FR-Spec", "FR-Spec, arXiv 2502.14856", fr_spec_params,
     "token ranking from raw text (safetensors with `ids`)", 0xE69F00, make_fr_spec_head},
}};

}  // namespace

std::span<const HeadInfo> head_registry() {
    return heads;
}

}  // namespace draftscope
