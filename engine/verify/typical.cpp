#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <charconv>
#include <cmath>
#include <utility>
#include <vector>

#include "engine/transformer/device_logits.h"
#include "engine/verify/acceptance_rule.h"
#include "engine/verify/tree_path.h"

namespace draftscope {

extern const RuleInfo typical_info;

namespace {

/// From the published code: keeps the logarithm of an impossible token finite.
constexpr double entropy_floor = 1e-5;

/// Thresholds of Medusa's code: posterior_threshold, and posterior_alpha = sqrt(posterior_threshold).
struct Thresholds {
    double epsilon = 0.09;
    double delta = 0.3;
};

double row_entropy(const TreeLogits& logits, int node) {
    if (logits.answers != nullptr)
        return static_cast<double>(logits.answers->entropies[logits.first_row + node]);
    double entropy = 0;
    for (const float logit : logits.rows.row(node)) {
        const auto p = static_cast<double>(target_probability(logits.choices[node], logits.sampling, logit));
        entropy -= p * std::log(p + entropy_floor);
    }
    return entropy;
}

/// Returns the target's most probable token after `node` and its logit; ties go to the lower id.
std::pair<TokenId, float> best_token(const TreeLogits& logits, int node) {
    if (logits.answers != nullptr) {
        const int at = (logits.first_row + node) * logits.answers->best;
        return {logits.answers->best_ids[at], logits.answers->best_logits[at]};
    }
    const std::span<const float> row = logits.rows.row(node);
    // Returns the first of equal values; NaN counts as the lowest.
    const auto less = [](float a, float b) { return b == b && !(a >= b); };
    const auto best = std::max_element(row.begin(), row.end(), less);
    return {static_cast<TokenId>(best - row.begin()), *best};
}

/// Returns the last node of the longest accepted path; ties go to the likeliest path, then to the first.
/// Works level by level: the first callback receives the inner nodes whose thresholds the next level needs.
/// An entropy may cost a pass over the vocabulary, and most nodes descend from a rejected one.
template <typename VisitNodes, typename Threshold, typename Probability>
int longest_path(const DraftTree& tree, AcceptScratch& scratch, VisitNodes visit_nodes, Threshold threshold,
                 Probability probability) {
    const std::size_t nodes = tree.tokens.size();
    std::vector<char>&inner = scratch.inner, &accepted = scratch.accepted;
    inner.assign(nodes, 0);
    for (std::size_t i = 1; i < nodes; ++i) inner[tree.parents[i]] = 1;
    std::vector<double>& likelihood = scratch.likelihoods;
    likelihood.assign(nodes, 0.0);
    accepted.assign(nodes, 0);
    accepted[0] = 1;
    std::size_t best = 0;
    std::vector<std::size_t>& wanted = scratch.wanted;
    wanted.reserve(nodes);
    wanted.assign(1, 0);
    for (int depth = tree.depths[0] + 1; !wanted.empty(); ++depth) {
        std::erase_if(wanted, [&](std::size_t i) { return inner[i] == 0; });
        visit_nodes(wanted);
        wanted.clear();
        for (std::size_t i = 1; i < nodes; ++i) {
            const auto parent = static_cast<std::size_t>(tree.parents[i]);
            if (tree.depths[i] != depth || accepted[parent] == 0) continue;
            const auto p = static_cast<double>(probability(i));
            if (!(p > threshold(parent))) continue;
            accepted[i] = 1;
            wanted.push_back(i);
            likelihood[i] = likelihood[parent] + std::log(p);
            if (tree.depths[best] < depth || likelihood[i] > likelihood[best]) best = i;
        }
    }
    return static_cast<int>(best);
}

/// Typical acceptance (Medusa, arXiv 2401.10774): accepts a draft if p(x) > min(epsilon, delta exp(-H(p)))
/// and its parent is accepted. The longest such path wins, then the likeliest. A node without an accepted
/// child emits the target's best token.
class TypicalRule final : public AcceptanceRule {
  public:
    explicit TypicalRule(Thresholds thresholds) : AcceptanceRule(typical_info), thresholds_(thresholds) {}

    std::string text() const override {
        return fmt::format("{}:epsilon={},delta={}", info().id, thresholds_.epsilon, thresholds_.delta);
    }
    RuleNeeds needs() const override {
        return {.draft_logits = true,
                .entropies = true,
                .device_path = true,
                .epsilon = thresholds_.epsilon,
                .delta = thresholds_.delta};
    }
    void accept(const DraftTree& tree, const TreeLogits& logits, AcceptScratch& scratch,
                Acceptance& out) const override {
        assert(logits.choices.size() == tree.tokens.size());
        const int last =
            logits.device_path.empty() ? last_accepted(tree, logits, scratch) : logits.device_path.back();
        path_to(tree, last, out.path);
        for (int i = 0; i < tree.size(); ++i) {
            const auto [token, logit] = best_token(logits, i);
            logits.emit(i, token, logit);
        }
        out.bonus = logits.choices[last].token;
        logits.emit_drafts(tree, out.path);
    }

  private:
    int last_accepted(const DraftTree& tree, const TreeLogits& logits, AcceptScratch& scratch) const {
        std::vector<double>& thresholds = scratch.thresholds;
        thresholds.assign(tree.tokens.size(), 0.0);
        const auto visit_nodes = [&](std::span<const std::size_t> nodes) {
            logits.exec.parallel(static_cast<int>(nodes.size()), [&](int w) {
                const double entropy = row_entropy(logits, static_cast<int>(nodes[w]));
                thresholds[nodes[w]] = std::min(thresholds_.epsilon, thresholds_.delta * std::exp(-entropy));
            });
        };
        return longest_path(
            tree, scratch, visit_nodes, [&](std::size_t i) { return thresholds[i]; },
            [&](std::size_t i) {
                return target_probability(logits.choices[tree.parents[i]], logits.sampling,
                                          logits.draft_logit(tree, static_cast<int>(i)));
            });
    }

    Thresholds thresholds_;
};

Status set_threshold(std::string_view parameter, Thresholds& thresholds) {
    const std::size_t equals = parameter.find('=');
    const std::string_view name = parameter.substr(0, equals);
    if (name != "epsilon" && name != "delta")
        return bad_input("--verify typical: unknown parameter '{}'; known are epsilon and delta", name);
    const std::string_view text =
        equals == std::string_view::npos ? std::string_view() : parameter.substr(equals + 1);
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || !(value > 0 && value <= 1))
        return bad_input("--verify typical: {}={} is not a number above 0 and at most 1", name, text);
    (name == "epsilon" ? thresholds.epsilon : thresholds.delta) = value;
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
