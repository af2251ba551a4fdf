#include <array>

#include "engine/draft/drafters.h"

namespace draftscope {
namespace {

constexpr std::array<DrafterInfo, 6> table{{
    {"none", "Autoregressive", "", false, "no drafts: one token per round, the baseline", make_none},
    {"ngram", "Prompt lookup", "", false,
     "copies the continuation of an earlier occurrence of the last words; "
     "ngram:max=3,min=1,window=0,backoff=1 "
     "sets the lengths to match, the search window in tokens (0 = all) and whether an unknown n-gram is "
     "shortened",
     make_ngram},
    {"eagle2", "EAGLE-2", "EAGLE-2, arXiv 2406.16858", true,
     "one decoder layer over the target's last hidden states; a folder with config.json and "
     "model.safetensors "
     "or pytorch_model.bin (SafeAILab, speculators)",
     make_eagle2},
    {"eagle3", "EAGLE-3", "EAGLE-3, arXiv 2503.01840", true,
     "one decoder layer over three fused hidden states of the target; a folder as SafeAILab, SpecForge or "
     "speculators publish it, or a GGUF file",
     make_eagle3},
    {"medusa", "Medusa", "Medusa, arXiv 2401.10774", true,
     "residual heads, one per depth, over the target's last hidden state; a folder with model.safetensors or "
     "medusa_lm_head.pt",
     make_medusa},
    {"hydra", "Hydra", "Hydra, arXiv 2402.05109", true,
     "heads that also read the drafted tokens before theirs; "
     "a folder with model.safetensors or hydra_lm_head.pt",
     make_hydra},
}};

}  // namespace

std::span<const DrafterInfo> drafter_registry() {
    return table;
}

const DrafterInfo* find_drafter(std::string_view id) {
    for (const DrafterInfo& info : table) {
        if (info.id == id) return &info;
    }
    return nullptr;
}

Status check_tree(const Drafter& drafter, const TreeSpec& tree) {
    const int max_levels = drafter.max_levels();
    if (!tree.choices || max_levels == 0 || tree.levels() <= max_levels) return {};
    return bad_input("tree: {} has {} levels, but the drafter has only {} heads; use choices:{},levels={}",
                     to_text(tree), tree.levels(), max_levels, tree.choices->name, max_levels);
}

Result<std::unique_ptr<Drafter>> make_drafter(std::string_view spec, const std::string& default_path,
                                              const Target& target, kernels::Exec& exec) {
    const std::size_t colon = spec.find(':');
    const std::string_view id = spec.substr(0, colon);
    const DrafterInfo* info = find_drafter(id);
    if (info == nullptr) {
        std::string known;
        for (const DrafterInfo& row : table) known.append(known.empty() ? "" : ", ").append(row.id);
        return bad_input("drafter '{}' is unknown; known drafters: {}", id, known);
    }
    std::string path(colon == std::string_view::npos ? std::string_view() : spec.substr(colon + 1));
    if (path.empty() && info->needs_weights) path = default_path;
    if (path.empty() && info->needs_weights) {
        return bad_input("drafter '{}' needs a checkpoint: use {}:FOLDER", id, id);
    }
    return info->make(path, target, exec);
}

}  // namespace draftscope
