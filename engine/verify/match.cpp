#include "engine/verify/acceptance_rule.h"

namespace draftscope {

extern const RuleInfo match_info;

namespace {

/// Exact match: follows the child whose token is the target's choice.
class MatchRule final : public AcceptanceRule {
  public:
    MatchRule() : AcceptanceRule(match_info) {}
};

constexpr std::string_view match_aliases[] = {"exact", "greedy"};

}  // namespace

RulePtr match_rule() {
    static const RulePtr rule = std::make_shared<MatchRule>();
    return rule;
}

constinit const RuleInfo match_info = {
    .id = "match",
    .aliases = match_aliases,
    .summary = "the target's own text, token for token",
    .losslessness = Losslessness::exact,
    .make = [](std::span<const std::string_view>) -> Result<RulePtr> { return match_rule(); }};

}  // namespace draftscope
