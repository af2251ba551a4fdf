#include <cassert>
#include <cmath>
#include <vector>

#include "engine/verify/tree_path.h"
#include "engine/verify/verify.h"

namespace draftscope {
namespace {

/// From the published code: keeps the logarithm of an impossible token finite.
constexpr double entropy_floor = 1e-5;

/// Returns min(epsilon, delta exp(-H)).
double acceptance_threshold(const VerifySpec& spec, double entropy) {
    return std::min(spec.epsilon, spec.delta * std::exp(-entropy));
}

double row_entropy(const TreeLogits& rows, const TargetSample& choice, int node) {
    double entropy = 0;
    for (const float logit : rows.logits.row(node)) {
        const auto p = static_cast<double>(target_probability(choice, rows.sampling, logit));
        entropy -= p * std::log(p + entropy_floor);
    }
    return entropy;
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

}  // namespace

void accept_typical(kernels::Exec& exec, const VerifySpec& spec, const DraftTree& tree,
                    const TreeLogits& rows, std::span<TargetSample> choices, AcceptScratch& scratch,
                    Acceptance& out) {
    assert(choices.size() == tree.tokens.size());
    std::vector<double>& thresholds = scratch.thresholds;
    thresholds.assign(tree.tokens.size(), 0.0);
    const auto visit_nodes = [&](std::span<const std::size_t> nodes) {
        exec.parallel(static_cast<int>(nodes.size()), [&](int w) {
            const std::size_t i = nodes[w];
            thresholds[i] = acceptance_threshold(spec, row_entropy(rows, choices[i], static_cast<int>(i)));
        });
    };
    const int last = longest_path(
        tree, scratch, visit_nodes, [&](std::size_t i) { return thresholds[i]; },
        [&](std::size_t i) {
            const float logit = rows.logits.row_data(tree.parents[i])[tree.tokens[i]];
            return target_probability(choices[tree.parents[i]], rows.sampling, logit);
        });
    path_to(tree, last, out.path);
    // A node without an accepted child emits the target's best token.
    for (std::size_t i = 0; i < choices.size(); ++i) emit_best(rows, static_cast<int>(i), choices[i]);
    out.bonus = choices[last].token;
    emit_path(tree, rows, out, choices);
}

void accept_typical(const VerifySpec& spec, const DraftTree& tree, const TreeVerdictInputs& verdict,
                    std::span<TargetSample> choices, Acceptance& out) {
    assert(choices.size() == tree.tokens.size() && verdict.entropies.size() == choices.size());
    AcceptScratch scratch;
    const int last = longest_path(
        tree, scratch, [](std::span<const std::size_t>) {},
        [&](std::size_t i) { return acceptance_threshold(spec, static_cast<double>(verdict.entropies[i])); },
        [&](std::size_t i) {
            return target_probability(choices[tree.parents[i]], verdict.sampling, verdict.draft_logits[i]);
        });
    accept_typical(last, tree, verdict, choices, out);
}

void accept_typical(int last, const DraftTree& tree, const TreeVerdictInputs& verdict,
                    std::span<TargetSample> choices, Acceptance& out) {
    path_to(tree, last, out.path);
    for (std::size_t i = 0; i < choices.size(); ++i)
        emit(verdict, verdict.best[i], verdict.best_logits[i], choices[i]);
    out.bonus = choices[last].token;
    emit_drafts(tree, verdict, out.path, choices);
}

}  // namespace draftscope
