#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/join_and.h"
#include "engine/verify/acceptance_rule.h"

// Defined in the rules' files.
#define DS_ACCEPTANCE_RULES(RULE) \
    RULE(match_info)              \
    RULE(pq_info)                 \
    RULE(typical_info)            \
    RULE(simulated_info)

namespace draftscope {

#define DS_DECLARE(info) extern const RuleInfo info;
DS_ACCEPTANCE_RULES(DS_DECLARE)
#undef DS_DECLARE

namespace {

#define DS_ADDRESS(info) &info,
constexpr const RuleInfo* rules[] = {DS_ACCEPTANCE_RULES(DS_ADDRESS)};
#undef DS_ADDRESS

/// Returns "match, pq and typical[:epsilon=0.09,delta=0.3]".
std::string known_rules() {
    std::vector<std::string> names;
    for (const RuleInfo* rule : rules) {
        if (rule->is_simulated()) continue;
        std::string& name = names.emplace_back(rule->id);
        if (!rule->parameters.empty()) name += fmt::format("[:{}]", rule->parameters);
    }
    return join_and(names);
}

}  // namespace

std::string_view to_text(Losslessness losslessness) {
    constexpr std::string_view words[] = {"exact", "distribution", "lossy"};
    return words[static_cast<int>(losslessness)];
}

std::span<const RuleInfo* const> rule_registry() {
    return rules;
}

const RuleInfo* find_rule(std::string_view name) {
    for (const RuleInfo* rule : rules) {
        if (rule->is_simulated()) continue;
        if (rule->id == name || std::ranges::find(rule->aliases, name) != rule->aliases.end()) return rule;
    }
    return nullptr;
}

Result<RulePtr> make_rule(std::string_view text) {
    const std::size_t colon = text.find(':');
    const std::string_view name = text.substr(0, colon);
    const RuleInfo* rule = find_rule(name);
    if (rule == nullptr) return bad_input("--verify {}: unknown rule; known are {}", text, known_rules());
    if (colon == std::string_view::npos) return rule->make({});
    std::string_view rest = text.substr(colon + 1);
    if (rule->parameters.empty())
        return bad_input("--verify {}: takes no parameters, found '{}'", name, rest);
    std::vector<std::string_view> parameters;
    while (true) {
        const std::size_t comma = rest.find(',');
        parameters.push_back(rest.substr(0, comma));
        if (comma == std::string_view::npos) return rule->make(parameters);
        rest.remove_prefix(comma + 1);
    }
}

RulePtr rule_in_effect(RulePtr rule, double temperature) {
    return temperature > 0 || rule->info().is_simulated() ? rule : match_rule();
}

}  // namespace draftscope
