#include <cassert>
#include <cmath>
#include <vector>

#include "engine/verify/verify.h"
#include "engine/verify/walk.h"

namespace draftscope {
namespace {

/// In the published code: keeps the logarithm of an impossible token finite.
constexpr double entropy_floor = 1e-5;

/// min(epsilon, delta exp(-H)) of one row's distribution.
double threshold_of(const VerifySpec& spec, const VerifyRows& rows, const TargetChoice& choice, int node) {
    double entropy = 0;
    for (const float logit : rows.logits.row(node)) {
        const auto p = static_cast<double>(probability_of(choice, rows.sampling, logit));
        entropy -= p * std::log(p + entropy_floor);
    }
    return std::min(spec.epsilon, spec.delta * std::exp(-entropy));
}

}  // namespace

Acceptance accept_typical(kernels::Exec& exec, const VerifySpec& spec, const DraftTree& tree,
                          const VerifyRows& rows, std::span<TargetChoice> choices) {
    assert(choices.size() == tree.tokens.size());
    const std::size_t nodes = tree.tokens.size();
    std::vector<double> thresholds(nodes, 0.0);
    std::vector<char> inner(nodes, 0);
    for (std::size_t i = 1; i < nodes; ++i) inner[static_cast<std::size_t>(tree.parents[i])] = 1;

    // The longest accepted path; of several the likeliest, then the first. Level by level: an entropy costs a
    // pass over the vocabulary, and most nodes lie behind one that was refused.
    std::vector<char> accepted(nodes, 0);
    std::vector<double> likelihood(nodes, 0.0);
    accepted[0] = 1;
    std::size_t best = 0;
    std::vector<std::size_t> wanted{0};
    for (int depth = tree.depths[0] + 1; !wanted.empty(); ++depth) {
        exec.parallel(static_cast<int>(wanted.size()), [&](int w) {
            const std::size_t i = wanted[static_cast<std::size_t>(w)];
            if (inner[i] != 0) thresholds[i] = threshold_of(spec, rows, choices[i], static_cast<int>(i));
        });
        wanted.clear();
        for (std::size_t i = 1; i < nodes; ++i) {
            const auto parent = static_cast<std::size_t>(tree.parents[i]);
            if (tree.depths[i] != depth || accepted[parent] == 0) continue;
            const float logit = rows.logits.row_data(tree.parents[i])[tree.tokens[i]];
            const auto p = static_cast<double>(probability_of(choices[parent], rows.sampling, logit));
            if (!(p > thresholds[parent])) continue;
            accepted[i] = 1;
            wanted.push_back(i);
            likelihood[i] = likelihood[parent] + std::log(p);
            if (tree.depths[best] < depth || likelihood[i] > likelihood[best]) best = i;
        }
    }
    Acceptance result;
    result.path = path_to(tree, static_cast<int>(best));
    // Where no draft follows, the target's best token does.
    for (std::size_t i = 0; i < nodes; ++i) emit_best(rows, static_cast<int>(i), choices[i]);
    result.bonus = choices[best].token;
    emit_path(tree, rows, result, choices);
    return result;
}

}  // namespace draftscope
