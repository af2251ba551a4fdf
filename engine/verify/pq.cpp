#include <memory>

#include "engine/transformer/device_logits.h"
#include "engine/verify/acceptance_rule.h"

namespace draftscope {

extern const RuleInfo pq_info;

namespace {

/// Rejection sampling (Leviathan et al. 2023) in its form for trees sampled without replacement (EAGLE-1).
/// Tries a node's children in sampling order and accepts each with probability min(1, p/q). A rejection sets
/// p := norm(max(0, p - q)) and removes the draft from q. The bonus is sampled from the residual of p.
/// Without sampled drafts, q = 1. Requires temperature > 0.
class PqRule final : public AcceptanceRule {
  public:
    PqRule() : AcceptanceRule(pq_info) {}

    RuleNeeds needs() const override {
        return {.sampled_drafts = true, .draft_logits = true, .rejections = true};
    }

  protected:
    void emit(const DraftTree& tree, const TreeLogits& logits, std::span<const int> path) const override {
        const std::size_t row = logits.first_row + path.back();
        const TokenId bonus = logits.answers.bonus[row];
        if (bonus != no_token) logits.emit(path.back(), bonus, logits.answers.bonus_logits[row]);
        logits.emit_drafts(tree, path);
    }
};

constexpr std::string_view pq_aliases[] = {"rejection"};

}  // namespace

constinit const RuleInfo pq_info = {.id = "pq",
                                    .aliases = pq_aliases,
                                    .summary = "rejection sampling: lossless in distribution",
                                    .losslessness = Losslessness::distribution,
                                    .make = [](std::span<const std::string_view>) -> Result<RulePtr> {
                                        return {std::make_shared<PqRule>()};
                                    }};

}  // namespace draftscope
