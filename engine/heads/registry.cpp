#include "engine/heads/registry.h"

#include <algorithm>

namespace draftscope {

// One line per head, in the papers' order. describe_NAME() is defined in the head's file.
#define DS_HEADS(HEAD) \
    HEAD(full)         \
    HEAD(fr_spec)      \
    HEAD(pa_fr)        \
    HEAD(vocabtrim)    \
    HEAD(vocabtrim_t)  \
    HEAD(bcl)          \
    HEAD(coral)        \
    HEAD(dynaspec)     \
    HEAD(specvocab)    \
    HEAD(slimspec)     \
    HEAD(microspec)    \
    HEAD(oracle)

#define DS_DECLARE_HEAD(name) HeadInfo describe_##name();
DS_HEADS(DS_DECLARE_HEAD)
#undef DS_DECLARE_HEAD

std::span<const HeadInfo> head_registry() {
#define DS_LIST_HEAD(name) describe_##name(),
    static const HeadInfo heads[] = {DS_HEADS(DS_LIST_HEAD)};
#undef DS_LIST_HEAD
    return heads;
}

const HeadInfo* find_head(std::string_view id) {
    for (const HeadInfo& info : head_registry())
        if (info.id == id) return &info;
    return nullptr;
}

const HeadInfo* find_head_or_suffix(std::string_view id) {
    return id == rdk_suffix().id ? &rdk_suffix() : find_head(id);
}

std::vector<std::string_view> heads_fitted_by(unsigned kinds) {
    std::vector<std::string_view> ids;
    for (const HeadInfo& info : head_registry())
        if (info.fit.has(kinds)) ids.push_back(info.id);
    if (rdk_suffix().fit.has(kinds)) ids.push_back(rdk_suffix().id);
    return ids;
}

HeadTraits capture_traits(const HeadSpec& spec) {
    HeadTraits traits;
    if (const HeadInfo* info = find_head(spec.id))
        traits = {info->rgb, info->support, info->accepts_ranking()};
    if (spec.rdk && traits.support == HeadSupport::fixed) traits.support = HeadSupport::dynamic;
    return traits;
}

}  // namespace draftscope
