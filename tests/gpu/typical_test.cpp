#include "engine/tree/draft_tree.h"
#include "engine/verify/verify.h"
#include "tests/gpu/device_pair.h"

namespace draftscope::testing {
namespace {

class TypicalOps : public DevicePair {};

/// The paths of several trees in one call equal those of the host for the same inputs.
TEST_P(TypicalOps, PathsMatchTheHost) {
    Rng rng(4);
    int longer = 0, apart = 0, trees_seen = 0;
    const auto exec = kernels::make_cpu_backend(1);
    for (const bool cut : {false, true})
        for (const int max_nodes : {1, 2, 9, 60, 300}) {
            Sampling sampling;
            sampling.temperature = 0.7;
            std::vector<DraftTree> trees;
            std::vector<std::int32_t> parents, sizes;
            std::vector<float> logits, norms, lowest, entropies;
            int width = 1;
            for (int t = 0; t < 5; ++t) {
                const int nodes = std::max(1, max_nodes - t), first = static_cast<int>(parents.size());
                DraftTree& tree = trees.emplace_back(DraftTree::with_root(0));
                for (int i = 1; i < nodes; ++i) {
                    // Chains and wide trees.
                    const auto back = static_cast<int>(rng.below(t % 2 == 0 ? std::min(i, 3) : i));
                    tree.add(i, i - 1 - back, -1.0f);
                }
                ASSERT_TRUE(tree.finish().ok());
                width = std::max(width, tree.max_depth() + 1);
                for (int i = 0; i < nodes; ++i) {
                    parents.push_back(first + std::max(tree.parents[i], 0));
                    sizes.push_back(tree.depths[i] + 1);
                    // Few distinct values, so that paths tie.
                    logits.push_back(std::round(static_cast<float>(rng.normal()) * 2) / 2 + 1);
                    norms.push_back(2.5f);
                    lowest.push_back(cut ? -0.5f : -std::numeric_limits<float>::infinity());
                    entropies.push_back(std::fabs(static_cast<float>(rng.normal())) + 0.5f);
                }
            }
            const Both<std::int32_t> d_parents(device(), twin(), parents), d_sizes(device(), twin(), sizes),
                paths(device(), twin(), 5 * (width + 1), -7);
            const Both<float> d_logits(device(), twin(), logits), d_norms(device(), twin(), norms),
                d_min_logit(device(), twin(), lowest), d_entropies(device(), twin(), entropies);
            std::vector<std::int32_t> expected(5 * (width + 1), -7);
            for (const bool on_twin : {false, true}) {
                std::vector<kernels::AcceptTypicalOp> ops, on_host;
                int first = 0;
                for (int t = 0; t < 5; ++t) {
                    kernels::AcceptTypicalOp op;
                    op.rows.parents = d_parents.on(on_twin);
                    op.rows.ancestor_counts = d_sizes.on(on_twin);
                    op.rows.width = width;
                    op.first_row = first;
                    op.nodes = trees[t].size();
                    op.inv_temperature = inverse_temperature(sampling);
                    op.epsilon = 0.09;
                    op.delta = cut ? 0.9 : 0.3;
                    op.draft_logits = d_logits.on(on_twin);
                    op.log_norm = d_norms.on(on_twin);
                    op.min_logit = cut ? d_min_logit.on(on_twin) : nullptr;
                    op.entropies = d_entropies.on(on_twin);
                    op.path = paths.on(on_twin) + t * (width + 1);
                    op.count = op.path + width;
                    ops.push_back(op);
                    op.rows.parents = parents.data();
                    op.rows.ancestor_counts = sizes.data();
                    op.draft_logits = logits.data();
                    op.log_norm = norms.data();
                    op.min_logit = cut ? lowest.data() : nullptr;
                    op.entropies = entropies.data();
                    op.path = expected.data() + t * (width + 1);
                    op.count = op.path + width;
                    on_host.push_back(op);
                    first += op.nodes;
                }
                (on_twin ? twin() : device()).accept_typical(ops);
                (*exec).accept_typical(on_host);
                const std::vector<std::int32_t> found = paths.read(on_twin);
                for (int t = 0; t < 5; ++t) {
                    const auto* path = found.data() + t * (width + 1);
                    const auto* reference = expected.data() + t * (width + 1);
                    const std::vector<int> mine(path, path + path[width]);
                    ++trees_seen;
                    longer += mine.size() > 3;
                    apart += mine != std::vector<int>(reference, reference + reference[width]);
                }
            }
        }
    EXPECT_EQ(trees_seen, 100);
    EXPECT_GT(longer, 20);
    // The exp of host and device may round a probability to either side of a threshold.
    EXPECT_LE(apart, GetParam().starts_with("simt") ? 0 : 2);
}

INSTANTIATE_TEST_SUITE_P(Devices, TypicalOps, device_kinds(), param_name);

}  // namespace
}  // namespace draftscope::testing
