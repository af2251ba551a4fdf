#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/gpu/device_pair.h"

/// Token affinity ops on a device, compared with the reference device.
namespace draftscope::testing {
namespace {

class AffinityOps : public DevicePair {};

/// Compared with a sum in the order of the columns.
TEST_P(AffinityOps, RedistributeMatchesTheReference) {
    constexpr int rows = 4, support = 700, stride = 703, vocab = 2100;
    Rng rng(12);
    const std::vector<std::int32_t> sizes = {0, 1, 640, support};
    std::vector<std::int32_t> tokens, first(vocab + 1, 0), sources;
    std::vector<float> weights, logits = normal(rows * stride, 3);
    logits[2 * stride + 5] = NAN;
    for (int i = 0; i < rows * stride; ++i) tokens.push_back(3 * (i % stride) % vocab);
    for (int t = 0; t < vocab; ++t) {
        for (std::uint64_t g = rng.below(4); g > 0; --g) {
            sources.push_back(static_cast<std::int32_t>(rng.below(vocab)));
            weights.push_back(static_cast<float>(rng.uniform()));
        }
        first[t + 1] = static_cast<std::int32_t>(sources.size());
    }
    // The same matrix by source.
    std::vector<std::int32_t> target_first(1, 0), targets;
    std::vector<float> target_weights;
    for (int s = 0; s < vocab; ++s) {
        for (int t = 0; t < vocab; ++t)
            for (std::int32_t i = first[t]; i < first[t + 1]; ++i) {
                if (sources[i] != s) continue;
                targets.push_back(t);
                target_weights.push_back(weights[i]);
            }
        target_first.push_back(static_cast<std::int32_t>(targets.size()));
    }
    const Both<std::int32_t> to_first(device(), twin(), target_first), to(device(), twin(), targets);
    const Both<float> taken(device(), twin(), target_weights);
    for (const bool own : {false, true}) {
        const Both<float> d_logits(device(), twin(), logits), given(device(), twin(), weights),
            out(device(), twin(), rows * (vocab + 1), 7.0f);
        const Both<std::int32_t> names(device(), twin(), tokens), count(device(), twin(), sizes),
            begin(device(), twin(), first), from(device(), twin(), sources);
        const Both<double> scratch(device(), twin(), rows * vocab, 5.0);
        std::vector<float> found[2];
        for (const bool on_twin : {false, true}) {
            kernels::RedistributeOp op;
            op.logits = d_logits.on(on_twin);
            op.stride = stride;
            op.rows = rows;
            op.support = support;
            op.sizes = own ? count.on(on_twin) : nullptr;
            op.tokens = own ? names.on(on_twin) : nullptr;
            op.token_stride = stride;
            op.temperature = 0.7f;
            op.vocab = vocab;
            op.first = begin.on(on_twin);
            op.sources = from.on(on_twin);
            op.weights = given.on(on_twin);
            op.target_first = to_first.on(on_twin);
            op.targets = to.on(on_twin);
            op.target_weights = taken.on(on_twin);
            op.scratch = scratch.on(on_twin);
            op.out = out.on(on_twin);
            op.out_stride = vocab + 1;
            (on_twin ? twin() : device()).redistribute(op);
            found[on_twin ? 1 : 0] = out.read(on_twin);
        }
        int some = 0;
        for (int r = 0; r < rows; ++r) {
            const int columns = own ? sizes[r] : support;
            std::vector<double> q(vocab, 0.0);
            double sum = 0;
            for (int i = 0; i < columns; ++i) {
                const float logit = logits[r * stride + i];
                const double weight = logit == logit ? std::exp(static_cast<double>(logit / 0.7f)) : 0.0;
                q[own ? tokens[r * stride + i] : i] = weight;
                sum += weight;
            }
            for (int t = 0; t < vocab; ++t) {
                double mass = 0;
                for (std::int32_t i = first[t]; i < first[t + 1] && sum > 0; ++i)
                    mass += q[sources[i]] / sum * static_cast<double>(weights[i]);
                const std::size_t at = r * (vocab + 1) + t;
                ASSERT_EQ(std::isinf(found[0][at]), mass == 0) << r << " " << t;
                ASSERT_EQ(std::isinf(found[1][at]), mass == 0);
                if (mass == 0) continue;
                ++some;
                EXPECT_NEAR(found[0][at], found[1][at], 1e-5);
                EXPECT_NEAR(found[0][at], 0.7 * std::log(mass), 1e-4);
            }
            EXPECT_EQ(found[0][r * (vocab + 1) + vocab], 7.0f);
        }
        EXPECT_GT(some, 500);
    }
}

TEST_P(AffinityOps, ReachableTokensMatchTheReference) {
    for (const int vocab : {1, 31, 32, 33, 700, 2085}) {
        Rng rng(static_cast<std::uint64_t>(vocab));
        std::vector<std::int32_t> first(1, 0), sources;
        for (int t = 0; t < vocab; ++t) {
            for (std::uint64_t g = rng.below(4); g > 0; --g)
                sources.push_back(static_cast<std::int32_t>(rng.below(static_cast<std::uint64_t>(vocab))));
            first.push_back(static_cast<std::int32_t>(sources.size()));
        }
        sources.push_back(0);  // an empty matrix needs an entry, too
        for (const int count : {0, 1, vocab / 9, vocab}) {
            std::vector<std::int32_t> set;
            for (int i = 0; i < count; ++i) set.push_back(i * vocab / count);
            const std::size_t words = (vocab + 31) / 32;
            std::vector<std::int32_t> expected;
            for (int t = 0; t < vocab; ++t)
                if (std::any_of(sources.begin() + first[t], sources.begin() + first[t + 1],
                                [&](std::int32_t giver) {
                                    return std::find(set.begin(), set.end(), giver) != set.end();
                                }))
                    expected.push_back(t);
            const auto reached = static_cast<std::int32_t>(expected.size());
            expected.resize(vocab + 1, -9);
            set.resize(vocab, vocab - 1);  // entries after the set's size are not read
            const Both<std::int32_t> tokens(device(), twin(), set), number(device(), twin(), {count}),
                begin(device(), twin(), first), from(device(), twin(), sources),
                out(device(), twin(), vocab + 1, -9), out_size(device(), twin(), 1, -9);
            const Both<std::uint32_t> bits(device(), twin(), 2 * words, ~0u);
            for (const bool on_twin : {false, true}) {
                kernels::ReachableTokensOp op;
                op.tokens = tokens.on(on_twin);
                op.size = number.on(on_twin);
                op.max_count = op.vocab = vocab;
                op.first = begin.on(on_twin);
                op.sources = from.on(on_twin);
                op.bits = bits.on(on_twin);
                op.out = out.on(on_twin);
                op.out_size = out_size.on(on_twin);
                (on_twin ? twin() : device()).list_reachable_tokens(op);
                EXPECT_EQ(out_size.read(on_twin), std::vector<std::int32_t>{reached})
                    << count << " of " << vocab;
                EXPECT_EQ(out.read(on_twin), expected) << count << " of " << vocab;
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Devices, AffinityOps, device_kinds_with_cpu(), param_name);

}  // namespace
}  // namespace draftscope::testing
