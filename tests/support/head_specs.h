#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "capture/head_traits.h"
#include "engine/heads/registry.h"

/// Lists of head specs from the registry, so that a test runs with every registered head.
namespace draftscope::testing {

/// Returns those of `variants` that are specs of this head; if there are none, its id. Heads that cannot
/// decode have no spec.
inline std::vector<std::string> specs_of_head(const HeadInfo& info,
                                              const std::vector<std::string>& variants = {}) {
    if (info.replay_only) return {};
    std::vector<std::string> specs;
    for (const std::string& spec : variants)
        if (head_id(spec) == info.id) specs.push_back(spec);
    if (specs.empty()) specs.emplace_back(info.id);
    return specs;
}

/// Returns `variants`, and the id of every other head for which `wanted` holds, in the registry's order.
inline std::vector<std::string> specs_of_heads(
    const std::vector<std::string>& variants,
    bool (*wanted)(const HeadInfo&) = [](const HeadInfo&) { return true; }) {
    std::vector<std::string> all;
    for (const HeadInfo& info : head_registry()) {
        const std::vector<std::string> specs = specs_of_head(info, variants);
        if (wanted(info) || specs != specs_of_head(info)) all.insert(all.end(), specs.begin(), specs.end());
    }
    return all;
}

}  // namespace draftscope::testing
