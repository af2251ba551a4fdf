#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "tests/gpu/device_pair.h"

namespace draftscope::testing {
namespace {

using kernels::half_t;
using kernels::padded_columns;

constexpr float poison = -12345.0f;

class DeviceOps : public DevicePair {};

TEST_P(DeviceOps, MatmulOfOddSizes) {
    for (const auto& [n, k] : {std::pair(1, 1), {16, 64}, {17, 65}, {50, 576}, {333, 200}, {1031, 1536}})
        for (const int rows : {1, 2, 7, 8, 9, 16, 17, 33, 64, 65, 130}) {
            if (too_large(std::int64_t{n} * k * rows)) continue;
            const int stride = padded_columns(k);
            const Both<half_t> w(device(), twin(), random_halves(n, k, 1)),
                x(device(), twin(), random_halves(rows, k, 2));
            const Both<float> bias(device(), twin(), normal(n, 3));
            for (const bool accumulate : {false, true}) {
                const Both<float> y(device(), twin(), normal(rows * (n + 3), 4));
                for (const bool on_twin : {false, true}) {
                    kernels::MatmulOp op;
                    op.weights = {w.on(on_twin), n, k, stride};
                    op.x = x.on(on_twin);
                    op.rows = rows;
                    op.y = y.on(on_twin);
                    op.y_stride = n + 3;
                    op.bias = accumulate ? nullptr : bias.on(on_twin);
                    op.accumulate = accumulate;
                    (on_twin ? twin() : device()).matmul(op);
                }
                expect_close(y.read(false), y.read(true), 1e-5, fmt::format("{} x {} x {}", rows, n, k));
            }
        }
}

TEST_P(DeviceOps, MatmulOfARowIsIndependentOfTheBatch) {
    const int n = GetParam().starts_with("cuda") ? 301 : 35, k = 704, max_rows = 130;
    const Both<half_t> w(device(), twin(), random_halves(n, k, 1)),
        x(device(), twin(), random_halves(max_rows, k, 2));
    const auto run = [&](int first, int rows) {
        const Both<float> y(device(), twin(), rows * n, poison);
        kernels::MatmulOp op;
        op.weights = {w.on(false), n, k, padded_columns(k)};
        op.x = x.on(false) + std::int64_t{first} * padded_columns(k);
        op.rows = rows;
        op.y = y.on(false);
        op.y_stride = n;
        device().matmul(op);
        return y.read(false);
    };
    const std::vector<float> all = run(0, max_rows);
    for (const int rows : {1, 3, 8, 12, 16, 30, 60})
        for (const int first : {0, 5, 64}) {
            const std::vector<float> some = run(first, rows);
            const auto* from = all.data() + std::ptrdiff_t{first} * n;
            EXPECT_TRUE(std::equal(some.begin(), some.end(), from)) << rows << " rows from " << first;
        }
}

/// A block computes more outputs if rows are short; the bits do not change.
TEST_P(DeviceOps, MatmulOfManyShortRows) {
    const int n = 8230, k = 64;
    const Both<half_t> w(device(), twin(), random_halves(n, k, 1)),
        x(device(), twin(), random_halves(16, k, 2));
    for (const int rows : {1, 11}) {
        const Both<float> y(device(), twin(), rows * n, poison);
        const Both<float> few(device(), twin(), rows * 50, poison);
        for (const bool on_twin : {false, true}) {
            kernels::MatmulOp op;
            op.weights = {w.on(on_twin), n, k, k};
            op.x = x.on(on_twin);
            op.rows = rows;
            op.y = y.on(on_twin);
            op.y_stride = n;
            (on_twin ? twin() : device()).matmul(op);
            op.weights.n = 50;
            op.y = few.on(on_twin);
            op.y_stride = 50;
            (on_twin ? twin() : device()).matmul(op);
        }
        const auto all = y.read(false), some = few.read(false);
        expect_close(all, y.read(true), 1e-5, "many outputs");
        for (int r = 0; r < rows; ++r)
            EXPECT_TRUE(std::equal(some.begin() + r * 50, some.begin() + (r + 1) * 50,
                                   all.begin() + std::ptrdiff_t{r} * n));
    }
}

TEST_P(DeviceOps, MatmulOfChosenOutputsMatchesAllOutputs) {
    const int n = 500, k = 192, rows = 11;
    const Both<half_t> w(device(), twin(), random_halves(n, k, 1)),
        x(device(), twin(), random_halves(rows, k, 2));
    std::vector<std::int32_t> list = {53};
    Rng rng(8);
    for (int i = 0; i < list[0]; ++i) list.push_back(static_cast<std::int32_t>(rng.below(n)));
    const Both<std::int32_t> chosen(device(), twin(), list);
    const Both<float> y(device(), twin(), rows * 64, poison), all(device(), twin(), rows * n, poison);
    kernels::MatmulOp op;
    op.weights = {w.on(false), n, k, padded_columns(k)};
    op.x = x.on(false);
    op.rows = rows;
    op.y = all.on(false);
    op.y_stride = n;
    device().matmul(op);
    op.y = y.on(false);
    op.y_stride = 64;
    op.chosen_count = chosen.on(false);
    op.chosen = chosen.on(false) + 1;
    op.max_chosen = 64;
    device().matmul(op);
    const auto some = y.read(false), every = all.read(false);
    for (int r = 0; r < rows; ++r)
        for (int c = 0; c < 64; ++c)
            EXPECT_EQ(some[r * 64 + c], c < list[0] ? every[r * n + list[c + 1]] : poison);
}

TEST_P(DeviceOps, RmsNorm) {
    for (const auto& [groups, width] : {std::pair(1, 576), {1, 33}, {5, 64}, {3, 7}, {1, 9001}})
        for (const bool add : {false, true}) {
            const int rows = 9, cols = groups * width, stride = padded_columns(cols);
            const Both<float> x(device(), twin(), normal(rows * (cols + 2), 1)),
                weight(device(), twin(), normal(width, 2)), y(device(), twin(), normal(rows * cols, 3));
            const Both<half_t> half(device(), twin(), rows * stride, half_t{0x4321});
            for (const bool on_twin : {false, true}) {
                kernels::RmsNormOp op;
                op.x = x.on(on_twin);
                op.x_stride = cols + 2;
                op.rows = rows;
                op.groups = groups;
                op.width = width;
                op.weight = weight.on(on_twin);
                op.eps = 1e-5f;
                op.y = y.on(on_twin);
                op.y_stride = cols;
                op.add = add;
                op.half = half.on(on_twin);
                op.half_stride = op.half_columns = stride;
                (on_twin ? twin() : device()).rms_norm(op);
            }
            expect_close(y.read(false), y.read(true), 1e-5, "norm");
            expect_close(widened(half.read(false)), widened(half.read(true)), 0.004, "norm, rounded");
        }
}

TEST_P(DeviceOps, CastAndSiluMul) {
    for (const int width : {1, 96, 200, 1536}) {
        const int rows = 6, stride = padded_columns(width);
        const Both<float> x(device(), twin(), normal(rows * (2 * width), 1));
        const Both<half_t> a(device(), twin(), rows * stride, half_t{7}),
            b(device(), twin(), rows * stride, half_t{7});
        for (const bool on_twin : {false, true}) {
            kernels::Backend& on = on_twin ? twin() : device();
            on.cast({x.on(on_twin), 2 * width, rows, width, a.on(on_twin), stride, stride});
            on.silu_mul({x.on(on_twin), 2 * width, rows, width, b.on(on_twin), stride});
        }
        EXPECT_EQ(a.read(false), a.read(true));
        expect_close(widened(b.read(false)), widened(b.read(true)), 0.004, "silu");
        for (const kernels::Activation activation : {kernels::Activation::silu, kernels::Activation::relu}) {
            for (const bool on_twin : {false, true}) {
                kernels::CastOp op{x.on(on_twin), 2 * width, rows, width, a.on(on_twin), stride, stride};
                op.activation = activation;
                (on_twin ? twin() : device()).cast(op);
            }
            expect_close(widened(a.read(false)), widened(a.read(true)), 0.004, "round behind an activation");
        }
    }
}

/// A residual block's sum, added to y or to rounded values.
TEST_P(DeviceOps, Add) {
    for (const int width : {1, 96, 257, 1536})
        for (const bool rounded : {false, true})
            for (const kernels::Activation activation :
                 {kernels::Activation::none, kernels::Activation::silu, kernels::Activation::relu}) {
                const int rows = 6, stride = padded_columns(width);
                const Both<float> x(device(), twin(), normal(rows * (width + 1), 1)),
                    y(device(), twin(), normal(rows * (width + 5), 2));
                const Both<half_t> base(device(), twin(), random_halves(rows, width, 3));
                for (const bool on_twin : {false, true})
                    (on_twin ? twin() : device())
                        .add({x.on(on_twin), width + 1, rows, width, activation,
                              rounded ? base.on(on_twin) : nullptr, stride, y.on(on_twin), width + 5});
                const auto found = y.read(false), expected = y.read(true), before = normal(found.size(), 2);
                if (activation == kernels::Activation::silu)
                    expect_close(found, expected, 1e-6, "add");
                else
                    EXPECT_EQ(found, expected);
                for (int r = 0; r < rows; ++r)  // nothing after the columns
                    for (int c = width; c < width + 5; ++c)
                        EXPECT_EQ(found[r * (width + 5) + c], before[r * (width + 5) + c]);
            }
}

/// Ties, NaN, infinities and fewer values than k.
TEST_P(DeviceOps, TopK) {
    for (const int support : {1, 5, 4096, 4097, 49152, 128256})
        for (const int k : {1, 4, 10, 64}) {
            if (k > support || too_large(std::int64_t{support} * 100)) continue;
            const int rows = 3, stride = support + 5;
            std::vector<float> values = normal(rows * stride, 1);
            for (std::size_t i = 0; i < values.size(); i += 7) values[i] = std::round(values[i] * 4);
            values[support / 2] = std::numeric_limits<float>::quiet_NaN();
            for (int c = support; c < stride; ++c) values[c] = 1e30f;  // padding, never read
            const Both<float> logits(device(), twin(), values);
            const Both<std::int32_t> ids(device(), twin(), rows * k, -7);
            const Both<float> best(device(), twin(), rows * k, poison), sums(device(), twin(), rows, poison);
            const Both<std::byte> scratch(device(), twin(), kernels::topk_scratch_bytes(rows, support, k),
                                          std::byte{0x5a});
            for (const bool on_twin : {false, true}) {
                kernels::TopKOp op;
                op.logits = logits.on(on_twin);
                op.stride = stride;
                op.rows = rows;
                op.support = support;
                op.k = k;
                op.ids = ids.on(on_twin);
                op.values = best.on(on_twin);
                op.logsumexp = sums.on(on_twin);
                op.scratch = scratch.on(on_twin);
                (on_twin ? twin() : device()).topk(op);
            }
            EXPECT_EQ(ids.read(false), ids.read(true)) << support << " " << k;
            if (support > 1) expect_close(best.read(false), best.read(true), 0, "best");
            if (support > 1) expect_close(sums.read(false), sums.read(true), 1e-6, "logsumexp");
        }
}

/// A sample is at the uniform's position in the running sum of weights, up to the rounding of float sums.
/// Rows include tiles with no weight, NaN and rows without any weight.
TEST_P(DeviceOps, Sample) {
    for (const int vocab : {1, 31, 33, 1000, 9001, 49152, 151936})
        for (const float scale : {1.0f, 3.0f}) {
            if (too_large(std::int64_t{vocab} * 20)) continue;
            const int rows = 5, stride = vocab + 3;
            std::vector<float> values = normal(rows * stride, vocab);
            for (int c = 0; c < std::min(vocab, 100); ++c)
                values[c] = -std::numeric_limits<float>::infinity();
            for (int c = 0; c < vocab; c += 3) values[stride + c] = std::numeric_limits<float>::quiet_NaN();
            for (int c = 0; c < vocab; ++c) values[2 * stride + c] = -std::numeric_limits<float>::infinity();
            std::vector<double> numbers = {0.0, 0.25, 0.5, 1.0 - 1e-12, 0.7316};
            const Both<float> logits(device(), twin(), values);
            const Both<double> uniforms(device(), twin(), numbers);
            const Both<std::int32_t> tokens(device(), twin(), rows, -7);
            const Both<float> drawn(device(), twin(), rows, poison), norms(device(), twin(), rows, poison);
            for (const bool on_twin : {false, true}) {
                kernels::SampleOp op;
                op.logits = logits.on(on_twin);
                op.stride = stride;
                op.rows = rows;
                op.vocab = vocab;
                op.inv_temperature = scale;
                op.uniforms = uniforms.on(on_twin);
                op.tokens = tokens.on(on_twin);
                op.values = drawn.on(on_twin);
                op.log_norm = norms.on(on_twin);
                (on_twin ? twin() : device()).sample(op);
            }
            expect_close(norms.read(false), norms.read(true), 1e-5, "log_norm");
            const std::vector<std::int32_t> found = tokens.read(false);
            const std::vector<float> of_found = drawn.read(false);
            for (int r = 0; r < rows; ++r) {
                const float* row = values.data() + r * stride;
                const auto weight = [&](int c) {
                    return row[c] == row[c] ? std::exp(static_cast<double>(row[c] * scale)) : 0.0;
                };
                double sum = 0, before = 0;
                for (int c = 0; c < vocab; ++c) sum += weight(c);
                const int token = found[r];
                ASSERT_TRUE(token >= 0 && token < vocab);
                if (sum == 0) {
                    EXPECT_EQ(token, 0);
                    continue;
                }
                EXPECT_EQ(of_found[r], row[token]);
                EXPECT_GT(weight(token), 0.0);
                for (int c = 0; c < token; ++c) before += weight(c);
                EXPECT_LE(before / sum, numbers[r] + 1e-5) << vocab;
                EXPECT_GE((before + weight(token)) / sum, numbers[r] - 1e-5) << vocab;
            }
        }
}

TEST_P(DeviceOps, RanksAndSetProbabilities) {
    for (const int vocab : {1, 70, 1000, 5003, 128256}) {
        const int rows = 4, stride = vocab + 9, count = 7;
        if (too_large(std::int64_t{vocab} * 40)) continue;
        std::vector<float> values = normal(rows * stride, 1);
        for (std::size_t i = 0; i < values.size(); i += 2) values[i] = std::round(values[i]);  // ties
        values[vocab / 3] = std::numeric_limits<float>::quiet_NaN();
        std::vector<std::int32_t> of, tokens, first, sizes, ids;
        Rng rng(8);
        for (int i = 0; i < count; ++i) {
            of.push_back(static_cast<std::int32_t>(rng.below(rows)));
            tokens.push_back(static_cast<std::int32_t>(rng.below(static_cast<unsigned>(vocab))));
            first.push_back(static_cast<std::int32_t>(ids.size()));
            sizes.push_back(i == 0 ? 0 : std::min(vocab, 300 * i));
            for (int j = 0; j < sizes.back(); ++j)
                ids.push_back(static_cast<std::int32_t>((std::int64_t{j} * vocab) / sizes.back()));
        }
        const Both<float> logits(device(), twin(), values), norms(device(), twin(), {3.0f, 2.5f, 4.0f, 3.5f}),
            found(device(), twin(), count, poison), masses(device(), twin(), count, poison);
        const Both<std::int32_t> d_rows(device(), twin(), of), d_tokens(device(), twin(), tokens),
            d_first(device(), twin(), first), d_sizes(device(), twin(), sizes), d_ids(device(), twin(), ids),
            ranks(device(), twin(), count, -7);
        for (const bool on_twin : {false, true}) {
            kernels::Backend& on = on_twin ? twin() : device();
            on.rank({logits.on(on_twin), stride, vocab, count, d_rows.on(on_twin), d_tokens.on(on_twin),
                     found.on(on_twin), ranks.on(on_twin)});
            on.sum_set_probability(kernels::SetProbabilityOp{
                logits.on(on_twin), stride, count, 0.7f, norms.on(on_twin), d_rows.on(on_twin),
                d_first.on(on_twin), d_sizes.on(on_twin), d_ids.on(on_twin), masses.on(on_twin)});
        }
        EXPECT_EQ(ranks.read(false), ranks.read(true)) << vocab;
        if (vocab > 1) expect_close(found.read(false), found.read(true), 0, "logits of tokens");
        if (vocab > 1) expect_close(masses.read(false), masses.read(true), 1e-5, "masses");
    }
}

/// The fused op has the same bits as product and selection. Cases: chunks of 16, 64, 128 and 256 outputs,
/// ties, a padded support and a bias.
TEST_P(DeviceOps, HeadMatchesProductAndTopK) {
    const bool gpu = GetParam().starts_with("cuda");
    for (const auto& [n, k] :
         {std::pair(1, 64), {255, 64}, {257, 130}, {600, 576}, {17000, 64}, {30800, 8}, {128256, 512}})
        for (const int rows : {1, 9, 17, 33})
            for (const int best : {1, 10, 64}) {
                if (best > n || (n > 600 && best < 64)) continue;
                // Long rows have large chunks.
                const bool long_row = n > 600 && n < 100000 && rows == 1 && GetParam() == "simt1";
                if (!gpu && !long_row && too_large(std::int64_t{n} * k * rows * 3)) continue;
                const int stride = padded_columns(k), support = n > 300 ? n - 7 : n;
                std::vector<half_t> weights = random_halves(n, k, 1);
                for (int r = 40; r < std::min(n, 80); ++r)  // equal rows make ties
                    std::copy_n(weights.begin(), stride, weights.begin() + std::ptrdiff_t{r} * stride);
                const Both<half_t> w(device(), twin(), weights),
                    x(device(), twin(), random_halves(rows, k, 2));
                const Both<float> bias(device(), twin(), std::vector<float>(n, 0.25f));
                const Both<std::int32_t> ids(device(), twin(), rows * best, -7);
                const Both<float> values(device(), twin(), rows * best, poison),
                    sums(device(), twin(), rows, poison);
                const Both<std::byte> scratch(device(), twin(),
                                              kernels::matmul_topk_scratch_bytes(rows, support, best),
                                              std::byte{0x5a});
                for (const bool on_twin : {false, true})
                    (on_twin ? twin() : device())
                        .matmul_topk({{w.on(on_twin), n, k, stride},
                                      x.on(on_twin),
                                      rows,
                                      support,
                                      best,
                                      bias.on(on_twin),
                                      ids.on(on_twin),
                                      values.on(on_twin),
                                      sums.on(on_twin),
                                      scratch.on(on_twin)});
                const std::string what = fmt::format("{} rows, best {} of {} x {}", rows, best, n, k);
                expect_close(sums.read(false), sums.read(true), 1e-5, what);
                expect_close(values.read(false), values.read(true), 1e-5, what);
                // The same device's product and selection give the same bits.
                const Both<float> logits(device(), twin(), rows * n, poison),
                    best_values(device(), twin(), rows * best, poison);
                const Both<std::int32_t> best_ids(device(), twin(), rows * best, -7);
                const Both<std::byte> more(device(), twin(), kernels::topk_scratch_bytes(rows, support, best),
                                           std::byte{0});
                kernels::MatmulOp product;
                product.weights = {w.on(false), n, k, stride};
                product.x = x.on(false);
                product.rows = rows;
                product.y = logits.on(false);
                product.y_stride = n;
                product.bias = bias.on(false);
                device().matmul(product);
                kernels::TopKOp select;
                select.logits = logits.on(false);
                select.stride = n;
                select.rows = rows;
                select.support = support;
                select.k = best;
                select.ids = best_ids.on(false);
                select.values = best_values.on(false);
                select.logsumexp = sums.on(false);
                select.scratch = more.on(false);
                device().topk(select);
                EXPECT_EQ(ids.read(false), best_ids.read(false)) << what;
                EXPECT_EQ(values.read(false), best_values.read(false)) << what;
            }
}

/// Successive levels of a beam, with ties, NaN and trimmed ids.
TEST_P(DeviceOps, Beam) {
    for (const auto& [k, keep, renamed] :
         {std::tuple(1, 1, false), {4, 4, true}, {10, 10, true}, {64, 64, false}}) {
        const int levels = 4, pool = keep * k;
        const Both<float> scores(device(), twin(), kernels::max_topk, poison);
        const Both<std::int32_t> tokens(device(), twin(), keep, -7), rows(device(), twin(), keep, -7),
            places(device(), twin(), kernels::max_topk, -7);
        std::vector<std::int32_t> names;
        for (int i = 0; i < 1000; ++i) names.push_back(3 * i + 1);
        const Both<std::int32_t> table(device(), twin(), names);
        std::vector<Both<std::int32_t>> ancestor_slots;
        for (int l = 0; l <= levels; ++l) ancestor_slots.emplace_back(device(), twin(), keep * (l + 1), -7);
        for (int level = 0; level < levels; ++level) {
            const int count = level == 0 ? 1 : keep;
            std::vector<float> logits = normal(count * k, level);
            std::vector<std::int32_t> ids;
            for (int i = 0; i < count * k; ++i) {
                if (i % 3 == 0) logits[i] = std::round(logits[i]);
                ids.push_back((i * 7 + level) % 1000);
            }
            if (level == 2) logits[count * k - 1] = std::numeric_limits<float>::quiet_NaN();
            const Both<float> d_logits(device(), twin(), logits), sums(device(), twin(), normal(count, 9)),
                logprobs(device(), twin(), pool, poison);
            const Both<std::int32_t> d_ids(device(), twin(), ids), pooled(device(), twin(), pool, -7),
                pool_parents(device(), twin(), pool, -7);
            const Both<float> pool_scores(device(), twin(), pool, poison);
            for (const bool on_twin : {false, true}) {
                kernels::BeamOp op;
                op.level = level;
                op.rows = count;
                op.k = k;
                op.ids = d_ids.on(on_twin);
                op.logits = d_logits.on(on_twin);
                op.logsumexp = sums.on(on_twin);
                op.tokens = renamed ? table.on(on_twin) : nullptr;
                op.pool_tokens = pooled.on(on_twin);
                op.pool_logprobs = logprobs.on(on_twin);
                op.keep = level + 1 < levels ? keep : 0;
                op.first_row = 5;
                op.first_slot = 100 + level * keep;
                op.scores = scores.on(on_twin);
                op.next_tokens = tokens.on(on_twin);
                op.next_rows = rows.on(on_twin);
                op.ancestor_slots = level == 0 ? nullptr : ancestor_slots[level - 1].on(on_twin);
                op.next_ancestor_slots = ancestor_slots[level].on(on_twin);
                op.pool_scores = pool_scores.on(on_twin);
                op.pool_parents = pool_parents.on(on_twin);
                op.row_indices = places.on(on_twin);
                op.first_index = level * 1000;
                (on_twin ? twin() : device()).beam(std::span(&op, 1));
            }
            EXPECT_EQ(pooled.read(false), pooled.read(true));
            EXPECT_EQ(pool_parents.read(false), pool_parents.read(true));
            expect_close(pool_scores.read(false), pool_scores.read(true), 0, "scores of the pool");
            EXPECT_EQ(tokens.read(false), tokens.read(true)) << k << " level " << level;
            EXPECT_EQ(rows.read(false), rows.read(true));
            EXPECT_EQ(ancestor_slots[level].read(false), ancestor_slots[level].read(true));
            expect_close(logprobs.read(false), logprobs.read(true), 0, "log-probabilities");
            if (level + 1 < levels) {
                std::vector<float> a = scores.read(false), b = scores.read(true);
                a.resize(keep);
                b.resize(keep);
                expect_close(a, b, 0, "scores");
            }
        }
    }
}

TEST_P(DeviceOps, RandomRowsAreTheHostsValues) {
    for (const auto& [rows, k] : {std::pair(1, 1), {3, 64}, {5, 200}, {2, 2048}}) {
        const int stride = padded_columns(k);
        const Both<half_t> memory(device(), twin(), numel(rows, stride), half_t{1});
        const kernels::RandomValues values{77, 0.3f};
        ASSERT_TRUE(device().fill_random(memory.on(false), rows, k, values));
        std::vector<half_t> expected(numel(rows, stride), 0);
        for (int row = 0; row < rows; ++row)
            for (int column = 0; column < k; ++column)
                expected[numel(row, stride) + static_cast<std::size_t>(column)] =
                    to_half(values.at(values.start_of(row), column));
        EXPECT_EQ(memory.read(false), expected) << rows << " x " << k;
    }
}

TEST_P(DeviceOps, GraphsReadTheCurrentArrays) {
    const int n = 40, k = 64;
    const Both<half_t> w(device(), twin(), random_halves(n, k, 1)),
        x(device(), twin(), random_halves(1, k, 2));
    const Both<float> y(device(), twin(), n, poison);
    const std::uint64_t key = device().new_graph_key();
    std::vector<std::vector<float>> found;
    for (int turn = 0; turn < 5; ++turn) {
        const std::vector<half_t> input = random_halves(1, k, turn / 2);
        device().upload(x.on(false), input.data(), input.size() * sizeof(half_t));
        device().graph(key, [&] {
            kernels::MatmulOp op;
            op.weights = {w.on(false), n, k, k};
            op.x = x.on(false);
            op.rows = 1;
            op.y = y.on(false);
            op.y_stride = n;
            device().matmul(op);
        });
        found.push_back(y.read(false));
    }
    EXPECT_EQ(found[0], found[1]);
    EXPECT_NE(found[1], found[2]);
    EXPECT_EQ(found[2], found[3]);
}

INSTANTIATE_TEST_SUITE_P(Devices, DeviceOps, device_kinds_with_dtypes(), param_name);

}  // namespace
}  // namespace draftscope::testing
