#include "base/rng.h"
#include "engine/verify/verify.h"
#include "tests/gpu/device_pair.h"

namespace draftscope::testing {
namespace {

constexpr float inf = std::numeric_limits<float>::infinity();

struct Setting {
    int top_k;
    double top_p;
};

class CutOps : public DevicePair {
  protected:
    /// Rows of logits: smooth, full of ties, with NaN and -inf, all equal, without any weight, one outlier.
    static std::vector<float> make_rows(int vocab, int stride) {
        std::vector<float> values = normal(rows * stride, static_cast<std::uint64_t>(vocab));
        const auto row = [&](int r) { return values.data() + r * stride; };
        for (int c = 0; c < vocab; ++c) {
            row(1)[c] = std::round(row(1)[c] * 2) / 2;
            if (c % 3 == 0) row(2)[c] = std::numeric_limits<float>::quiet_NaN();
            if (c % 5 == 1) row(2)[c] = -inf;
            row(3)[c] = -0.0f;
            if (c % 2 == 0) row(3)[c] = 0.0f;
            row(4)[c] = -inf;
        }
        row(5)[vocab / 2] = 40.0f;
        return values;
    }
    static constexpr int rows = 6;
};

/// The digit search finds the same mask as sorting, to the last id of equal logits.
TEST_P(CutOps, MatchSorting) {
    for (const int vocab : {1, 2100, 151936})
        for (const auto& [top_k, top_p] : {Setting{5, 1.0},
                                           {0, 0.9},
                                           {40, 0.7},
                                           {vocab - 1, 1.0},
                                           {vocab, 0.3},
                                           {0, 1e-9},
                                           {1, 0.5},
                                           {1000, 0.999999}}) {
            if (too_large(std::int64_t{vocab} * 40)) continue;
            const int stride = vocab + 5;
            const Both<float> logits(device(), twin(), make_rows(vocab, stride));
            const Both<float> lowest(device(), twin(), rows, -7.0f);
            const Both<std::int32_t> last(device(), twin(), rows, -7);
            for (const bool on_twin : {false, true})
                (on_twin ? twin() : device())
                    .mask_top_k_top_p({logits.on(on_twin), stride, rows, vocab, 1.25f, std::max(top_k, 0),
                                       top_p, lowest.on(on_twin), last.on(on_twin)});
            const auto least = lowest.read(false), expected = lowest.read(true);
            const auto ids = last.read(false), expected_ids = last.read(true);
            for (std::size_t r = 0; r < rows; ++r) {
                EXPECT_EQ(least[r], expected[r]) << vocab << " " << top_k << " " << top_p << " row " << r;
                EXPECT_EQ(ids[r], expected_ids[r]) << vocab << " " << top_k << " " << top_p << " row " << r;
            }
        }
}

/// Samples from the mask equal the host's for the same uniforms. Sums are added in a different order, so a
/// uniform within rounding of a token's boundary may select the neighbour. Such cases are counted and rare.
TEST_P(CutOps, SamplesMatchTheHost) {
    const auto exec = kernels::make_cpu_backend(1);
    int drawn = 0, apart = 0;
    for (const int vocab : {13, 2100, 49152})
        for (const auto& [top_k, top_p] : {Setting{5, 1.0}, {0, 0.9}, {0, 0.5}, {64, 0.8}, {200, 0.95}}) {
            if (too_large(std::int64_t{vocab} * 40)) continue;
            const int stride = vocab + 5;
            Sampling sampling;
            sampling.temperature = 0.8;
            sampling.top_k = top_k;
            sampling.top_p = top_p;
            const std::vector<float> values = make_rows(vocab, stride);
            std::vector<TokenPosition> places;
            std::vector<double> numbers;
            for (int r = 0; r < rows; ++r) {
                places.push_back({7, 100 * vocab + 10 * top_k + r});
                numbers.push_back(
                    token_uniform(sampling.seed, 7, static_cast<std::uint64_t>(places.back().position)));
            }
            std::vector<TargetSample> expected;
            sample_tokens(*exec, Rows<const float>(values.data(), rows, stride), vocab, sampling, places,
                          expected);
            const Both<float> logits(device(), twin(), values), lowest(device(), twin(), rows, -7.0f),
                found(device(), twin(), rows, -7.0f), norms(device(), twin(), rows, -7.0f);
            const Both<double> uniforms(device(), twin(), numbers);
            const Both<std::int32_t> last(device(), twin(), rows, -7), tokens(device(), twin(), rows, -7);
            for (const bool on_twin : {false, true}) {
                kernels::Backend& on = on_twin ? twin() : device();
                const float scale = inverse_temperature(sampling);
                on.mask_top_k_top_p({logits.on(on_twin), stride, rows, vocab, scale, top_k, top_p,
                                     lowest.on(on_twin), last.on(on_twin)});
                kernels::SampleOp op;
                op.logits = logits.on(on_twin);
                op.stride = stride;
                op.rows = rows;
                op.vocab = vocab;
                op.inv_temperature = scale;
                op.uniforms = uniforms.on(on_twin);
                op.tokens = tokens.on(on_twin);
                op.values = found.on(on_twin);
                op.log_norm = norms.on(on_twin);
                op.mask = {lowest.on(on_twin), last.on(on_twin)};
                on.sample(op);
                const auto ids = tokens.read(on_twin);
                const auto least = lowest.read(on_twin), logs = norms.read(on_twin);
                for (int r = 0; r < rows; ++r) {
                    if (r == 4) continue;  // nothing to sample
                    const TargetSample& choice = expected[r];
                    ++drawn;
                    if (ids[r] != choice.token || least[r] != choice.min_logit) {
                        ++apart;
                        continue;
                    }
                    EXPECT_NEAR(logs[r], choice.log_norm, 2e-6 * std::max(1.0f, std::fabs(choice.log_norm)));
                    EXPECT_EQ(found.read(on_twin)[r], values[r * stride + choice.token]);
                }
            }
        }
    EXPECT_GE(drawn, 100);
    EXPECT_LE(apart, drawn / 100);
}

/// Entropies and probabilities over the mask, compared with the reference device and with a sum in double.
TEST_P(CutOps, EntropiesIgnoreMaskedTokens) {
    for (const int vocab : {1, 33, 5003, 128256})
        for (const bool cut : {false, true}) {
            if (too_large(std::int64_t{vocab} * 40)) continue;
            const int stride = vocab + 5;
            const float scale = 1.5f;
            const std::vector<float> values = make_rows(vocab, stride);
            std::vector<float> least(rows, -inf), norms(rows);
            std::vector<double> exact(rows);
            for (int r = 0; r < rows; ++r) {
                const float* row = values.data() + r * stride;
                if (cut) least[r] = 0.25f * static_cast<float>(r);
                double sum = 0;
                for (int c = 0; c < vocab; ++c)
                    if (row[c] >= least[r]) sum += std::exp(static_cast<double>(row[c] * scale));
                norms[r] = sum > 0 ? static_cast<float>(std::log(sum)) : 0.0f;
                for (int c = 0; c < vocab; ++c) {
                    if (!(row[c] >= least[r])) continue;
                    const double p = std::min(
                        1.0, std::exp(static_cast<double>(row[c] * scale) - static_cast<double>(norms[r])));
                    exact[r] -= p * std::log(p + 1e-5);
                }
            }
            const Both<float> logits(device(), twin(), values), lowest(device(), twin(), least),
                log_norms(device(), twin(), norms), found(device(), twin(), rows, -7.0f);
            for (const bool on_twin : {false, true}) {
                kernels::EntropyOp op;
                op.logits = logits.on(on_twin);
                op.stride = stride;
                op.rows = rows;
                op.vocab = vocab;
                op.inv_temperature = scale;
                op.log_norm = log_norms.on(on_twin);
                op.min_logit = cut ? lowest.on(on_twin) : nullptr;
                op.out = found.on(on_twin);
                (on_twin ? twin() : device()).entropy(op);
                const auto entropies = found.read(on_twin);
                // Floats near 20 are 2e-6 apart; an error of that size in the norm changes every probability
                // accordingly.
                for (std::size_t r = 0; r < rows; ++r)
                    EXPECT_NEAR(static_cast<double>(entropies[r]), exact[r], 2e-5) << vocab << " row " << r;
            }
        }
}

INSTANTIATE_TEST_SUITE_P(Devices, CutOps, device_kinds(), param_name);

}  // namespace
}  // namespace draftscope::testing
