#include <fmt/format.h>

#include "base/numel.h"
#include "base/parse.h"
#include "engine/verify/acceptance_rule.h"

namespace draftscope {

extern const RuleInfo typical_info;

namespace {

/// Thresholds of Medusa's code: posterior_threshold, and posterior_alpha = sqrt(posterior_threshold).
struct Thresholds {
    double epsilon = 0.09;
    double delta = 0.3;
};

/// Typical acceptance (Medusa, arXiv 2401.10774): accepts a draft if p(x) > min(epsilon, delta exp(-H(p)))
/// and its parent is accepted. The longest such path wins, then the likeliest. A node without an accepted
/// child emits the target's best token.
class TypicalRule final : public AcceptanceRule {
  public:
    explicit TypicalRule(Thresholds thresholds) : AcceptanceRule(typical_info), thresholds_(thresholds) {}

    std::string text() const override {
        return fmt::format("{}:epsilon={},delta={}", info().id, thresholds_.epsilon, thresholds_.delta);
    }
    RuleNeeds needs() const override { return {.best_tokens = 1, .draft_logits = true}; }
    void enqueue(VerifyContext& context) const override;

  protected:
    void emit(const DraftTree& tree, const TreeLogits& logits, std::span<const int> path) const override {
        const LogitsResult& results = logits.results;
        for (int i = 0; i < tree.size(); ++i) {
            const std::size_t at = numel(logits.first_row + i, results.best);
            logits.emit(i, results.best_ids[at], results.best_logits[at]);
        }
        logits.emit_drafts(tree, path);
    }

  private:
    Thresholds thresholds_;
};

void TypicalRule::enqueue(VerifyContext& context) const {
    const TargetLogits& logits = context.logits;
    RoundStep& step = context.step;
    kernels::EntropyOp entropy;
    entropy.logits = logits.data();
    entropy.stride = logits.columns();
    entropy.rows = step.layout.rows();
    entropy.vocab = logits.query().vocab;
    entropy.inv_temperature = logits.inverse_temperature();
    entropy.log_norm = logits.log_norm();
    entropy.min_logit = logits.min_logit();
    entropy.out = step.memory.backend.alloc<float>(step.layout.rows());
    const auto ops = step.memory.host.list<kernels::AcceptTypicalOp>(step.layout.trees().size());
    if (!step.memory.enough()) return;
    for (int tree_index = 0; tree_index < static_cast<int>(ops.size()); ++tree_index) {
        kernels::AcceptTypicalOp& op = ops[tree_index];
        op.rows = step.layout.arrays();
        op.first_row = step.layout.trees()[tree_index].first_row;
        op.nodes = step.layout.trees()[tree_index].nodes;
        op.inv_temperature = entropy.inv_temperature;
        op.epsilon = thresholds_.epsilon;
        op.delta = thresholds_.delta;
        op.draft_logits = logits.draft_logits();
        op.log_norm = logits.log_norm();
        op.min_logit = logits.min_logit();
        op.entropies = entropy.out;
        op.path = step.layout.path(tree_index);
        op.count = step.layout.path_count(tree_index);
    }
    context.backend.accept_typical_trees(entropy, ops);
}

Status set_threshold(std::string_view parameter, Thresholds& thresholds) {
    const std::size_t equals = parameter.find('=');
    const std::string_view name = parameter.substr(0, equals);
    if (name != "epsilon" && name != "delta")
        return bad_input("--verify typical: unknown parameter '{}'; known are epsilon and delta", name);
    const std::string_view text =
        equals == std::string_view::npos ? std::string_view() : parameter.substr(equals + 1);
    const auto value = parse_number<double>(text);
    if (!value || !(*value > 0 && *value <= 1))
        return bad_input("--verify typical: {}={} is not a number above 0 and at most 1", name, text);
    (name == "epsilon" ? thresholds.epsilon : thresholds.delta) = *value;
    return {};
}

Result<RulePtr> make_typical(std::span<const std::string_view> parameters) {
    Thresholds thresholds;
    for (const std::string_view parameter : parameters) DS_TRY(set_threshold(parameter, thresholds));
    return RulePtr(std::make_shared<TypicalRule>(thresholds));
}

}  // namespace

constinit const RuleInfo typical_info = {.id = "typical",
                                         .parameters = "epsilon=0.09,delta=0.3",
                                         .summary = "Medusa's typical acceptance: LOSSY",
                                         .losslessness = Losslessness::lossy,
                                         .own_threshold = true,
                                         .make = make_typical};

}  // namespace draftscope
