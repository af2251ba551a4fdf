#include "engine/draft/registry.h"

#include <algorithm>

#include "engine/heads/registry.h"

namespace draftscope {

// One line per drafter. describe_NAME() is defined in the drafter's file.
#define DS_DRAFTERS(DRAFTER) \
    DRAFTER(none)            \
    DRAFTER(ngram)           \
    DRAFTER(suffix)          \
    DRAFTER(pair)            \
    DRAFTER(eagle2)          \
    DRAFTER(eagle3)          \
    DRAFTER(draft_model)     \
    DRAFTER(medusa)          \
    DRAFTER(hydra)

#define DS_DECLARE_DRAFTER(name) DrafterInfo describe_##name();
DS_DRAFTERS(DS_DECLARE_DRAFTER)
#undef DS_DECLARE_DRAFTER

std::span<const DrafterInfo> drafter_registry() {
#define DS_LIST_DRAFTER(name) describe_##name(),
    static const DrafterInfo drafters[] = {DS_DRAFTERS(DS_LIST_DRAFTER)};
#undef DS_LIST_DRAFTER
    return drafters;
}

const DrafterInfo* find_drafter(std::string_view id) {
    for (const DrafterInfo& info : drafter_registry())
        if (info.id == id) return &info;
    return nullptr;
}

namespace {

std::string_view first_id(std::string_view spec) {
    return spec.substr(0, spec.find(':'));
}

}  // namespace

std::string_view pair_prefix(std::string_view spec) {
    std::size_t size = 0;
    for (std::string_view rest = spec; first_id(rest) == "pair"; rest = spec.substr(size)) {
        const std::size_t plus = rest.find('+');
        if (plus == std::string_view::npos) break;
        size += plus + 1;
    }
    return spec.substr(0, size);
}

Status check_pair(std::string_view spec) {
    for (std::string_view rest = spec; first_id(rest) == "pair";) {
        const std::size_t colon = rest.find(':'), plus = rest.find('+');
        const std::string_view text =
            colon < plus && plus < rest.size() ? rest.substr(colon + 1, plus - colon - 1) : "";
        const DrafterInfo* info = find_drafter(first_id(text));
        if (info == nullptr || info->needs_weights || !info->drafts || plus + 1 == rest.size())
            return bad_input(
                "drafter '{}': use pair:suffix+DRAFTER or pair:ngram+DRAFTER, where DRAFTER is another "
                "drafter's complete spec, for example pair:suffix+eagle3",
                spec);
        rest.remove_prefix(plus + 1);
    }
    return {};
}

std::string_view drafter_id(std::string_view spec) {
    const std::size_t prefix = pair_prefix(spec).size();
    return spec.substr(0, prefix + first_id(spec.substr(prefix)).size());
}

std::vector<std::string> split_drafters(std::string_view list) {
    std::vector<std::string> out;
    for (std::size_t first = 0; first <= list.size();) {
        const std::size_t comma = std::min(list.find(',', first), list.size());
        const std::string_view piece = list.substr(first, comma - first);
        if (out.empty() || find_drafter(first_id(piece)) != nullptr)
            out.emplace_back(piece);
        else
            out.back().append(",").append(piece);
        first = comma + 1;
    }
    return out;
}

std::string with_default_path(std::string_view text, std::string_view default_path) {
    return std::string(text.empty() || text.front() == ',' ? default_path : "").append(text);
}

DrafterInfo drafter_traits(std::string_view spec) {
    const DrafterInfo* info = find_drafter(first_id(spec.substr(pair_prefix(spec).size())));
    return info == nullptr ? DrafterInfo() : *info;
}

Status check_head(const DrafterInfo& drafter, const HeadInfo& head) {
    constexpr unsigned trained = FitRecipe::routers | FitRecipe::trimmed_rows;
    if (drafter.trains_heads || !head.fit.has(trained)) return {};
    return bad_input(
        "--head {}: must be trained with its drafter, which this version does not do for --drafter {}; use "
        "full, "
        "fr-spec, vocabtrim, pa-fr, bcl with a ranking, or microspec",
        head.id, drafter.id);
}

Status check_tree(const Drafter& drafter, const TreeSpec& tree) {
    if (tree.adaptive && tree.adaptive->limits().any() && !drafter.uses_head())
        return bad_input(
            "tree: {} ends drafts by their probabilities, which the drafter has none of; use "
            "chain=N or another policy",
            to_text(tree));
    const int max_levels = drafter.properties().max_levels;
    if (!tree.choices || max_levels == 0 || tree.levels() <= max_levels) return {};
    return bad_input("tree: {} has {} levels, but the drafter has only {} heads; use choices:{},levels={}",
                     to_text(tree), tree.levels(), max_levels, tree.choices->name, max_levels);
}

Result<std::unique_ptr<Drafter>> make_drafter(std::string_view spec, const std::string& default_path,
                                              const Target& target, kernels::Backend& backend) {
    const std::size_t colon = spec.find(':');
    const std::string_view id = first_id(spec);
    const DrafterInfo* info = find_drafter(id);
    if (info == nullptr) {
        std::string known;
        for (const DrafterInfo& row : drafter_registry())
            known.append(known.empty() ? "" : ", ").append(row.id);
        return bad_input("drafter '{}' is unknown; known drafters: {}", id, known);
    }
    std::string path(colon == std::string_view::npos ? std::string_view() : spec.substr(colon + 1));
    if (info->needs_weights) path = with_default_path(path, default_path);
    DS_TRY(check_pair(fmt::format("{}:{}", id, path)));
    if (info->needs_weights && (path.empty() || path.front() == ',')) {
        return bad_input("drafter '{}' needs a checkpoint: use {}:FOLDER", id, id);
    }
    return info->make(path, target, backend);
}

}  // namespace draftscope
