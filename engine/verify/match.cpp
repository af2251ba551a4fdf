#include <cassert>

#include "engine/verify/acceptance_rule.h"
#include "engine/verify/tree_path.h"

namespace draftscope {

extern const RuleInfo match_info;

namespace {

/// Exact match: follows the child whose token is the target's choice.
class MatchRule final : public AcceptanceRule {
  public:
    MatchRule() : AcceptanceRule(match_info) {}

    RuleNeeds needs() const override { return {.device_path = true}; }
    void accept(const DraftTree& tree, const TreeLogits& logits, AcceptScratch&,
                Acceptance& out) const override {
        assert(logits.choices.size() == tree.tokens.size());
        const auto next_token = [&](std::span<const int> path) { return logits.choices[path.back()].token; };
        follow_path(tree, next_token, out.path);
        out.bonus = next_token(out.path);
    }
};

constexpr std::string_view aliases[] = {"exact", "greedy"};

}  // namespace

RulePtr match_rule() {
    static const RulePtr rule = std::make_shared<MatchRule>();
    return rule;
}

constinit const RuleInfo match_info = {
    .id = "match",
    .aliases = aliases,
    .summary = "the target's own text, token for token",
    .losslessness = Losslessness::exact,
    .make = [](std::span<const std::string_view>) -> Result<RulePtr> { return match_rule(); }};

}  // namespace draftscope
