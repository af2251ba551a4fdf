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
double threshold_of(const VerifySpec& spec, double entropy) {
    return std::min(spec.epsilon, spec.delta * std::exp(-entropy));
}

double entropy_of(const VerifyRows& rows, const TargetChoice& choice, int node) {
    double entropy = 0;
    for (const float logit : rows.logits.row(node)) {
        const auto p = static_cast<double>(probability_of(choice, rows.sampling, logit));
        entropy -= p * std::log(p + entropy_floor);
    }
    return entropy;
}

/// Returns the last node of the longest accepted path; ties go to the likeliest path, then to the first.
/// Works level by level: the first callback receives the inner nodes whose thresholds the next level needs.
/// An entropy may cost a pass over the vocabulary, and most nodes descend from a rejected one.
template <typename LookAt, typename ThresholdOf, typename ProbabilityOf>
int longest_path(const DraftTree& tree, AcceptScratch& scratch, LookAt look_at, ThresholdOf threshold,
                 ProbabilityOf probability) {
    const std::size_t nodes = tree.tokens.size();
    std::vector<char>&inner = scratch.inner, &accepted = scratch.accepted;
    inner.assign(nodes, 0);
    for (std::size_t i = 1; i < nodes; ++i) inner[static_cast<std::size_t>(tree.parents[i])] = 1;
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
        look_at(wanted);
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
                    const VerifyRows& rows, std::span<TargetChoice> choices, AcceptScratch& scratch,
                    Acceptance& out) {
    assert(choices.size() == tree.tokens.size());
    std::vector<double>& thresholds = scratch.thresholds;
    thresholds.assign(tree.tokens.size(), 0.0);
    const auto look_at = [&](std::span<const std::size_t> nodes) {
        exec.parallel(static_cast<int>(nodes.size()), [&](int w) {
            const std::size_t i = nodes[static_cast<std::size_t>(w)];
            thresholds[i] = threshold_of(spec, entropy_of(rows, choices[i], static_cast<int>(i)));
        });
    };
    const int last = longest_path(
        tree, scratch, look_at, [&](std::size_t i) { return thresholds[i]; },
        [&](std::size_t i) {
            const float logit = rows.logits.row_data(tree.parents[i])[tree.tokens[i]];
            return probability_of(choices[static_cast<std::size_t>(tree.parents[i])], rows.sampling, logit);
        });
    path_to(tree, last, out.path);
    // A node without an accepted child emits the target's best token.
    for (std::size_t i = 0; i < choices.size(); ++i) emit_best(rows, static_cast<int>(i), choices[i]);
    out.bonus = choices[static_cast<std::size_t>(last)].token;
    emit_path(tree, rows, out, choices);
}

void accept_typical(const VerifySpec& spec, const DraftTree& tree, const JudgedTree& judged,
                    std::span<TargetChoice> choices, Acceptance& out) {
    assert(choices.size() == tree.tokens.size() && judged.entropies.size() == choices.size());
    AcceptScratch scratch;
    const int last = longest_path(
        tree, scratch, [](std::span<const std::size_t>) {},
        [&](std::size_t i) { return threshold_of(spec, static_cast<double>(judged.entropies[i])); },
        [&](std::size_t i) {
            return probability_of(choices[static_cast<std::size_t>(tree.parents[i])], judged.sampling,
                                  judged.draft_logits[i]);
        });
    accept_typical(last, tree, judged, choices, out);
}

void accept_typical(int last, const DraftTree& tree, const JudgedTree& judged,
                    std::span<TargetChoice> choices, Acceptance& out) {
    path_to(tree, last, out.path);
    for (std::size_t i = 0; i < choices.size(); ++i)
        emit(judged, judged.best[i], judged.best_logits[i], choices[i]);
    out.bonus = choices[static_cast<std::size_t>(last)].token;
    emit_drafts(tree, judged, out.path, choices);
}

}  // namespace draftscope
