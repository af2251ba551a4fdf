#include <algorithm>
#include <cstring>
#include <set>

#include "base/numel.h"
#include "kernels/cpu/vector/elementwise.h"
#include "kernels/device_array.h"
#include "kernels_test_util.h"
#include "tests/support/row_ops.h"

/// The CPU as a device: its fused ops equal the separate ones, and its ops follow the contracts of
/// kernels/ops.
namespace draftscope::kernels {
namespace {

/// Runs `op` fused and as Device does it by default, and compares the outputs.
void compare_with_separate_ops(Backend& cpu, FusedMatmulOp op, std::span<const float> before) {
    const int rows = op.product.rows, n = op.product.weights.n, stride = op.product.weights.stride;
    std::vector<float> x(numel(rows, stride)), y[2], gated[2];
    if (op.norm.x != nullptr) op.product.x = Activations(x.data());
    op.product.y_stride = n;
    for (int fused = 0; fused < 2; ++fused) {
        y[fused].assign(before.begin(), before.end());
        gated[fused].assign(numel(rows, padded_columns(n / 2)), 0.0f);
        op.product.y = y[fused].data();
        if (op.gated) {
            op.gated = Activations(gated[fused].data());
            op.gated_stride = padded_columns(n / 2);
        }
        if (fused == 1)
            cpu.fused_matmul(op);
        else
            cpu.Backend::fused_matmul(op);
    }
    if (!op.gated)
        EXPECT_TRUE(same_bits(y[0].data(), y[1].data(), rows * n));
    else
        EXPECT_TRUE(same_bits(gated[0].data(), gated[1].data(), rows * padded_columns(n / 2)));
}

TEST(CpuBackend, FusesProductsWithoutChangingThem) {
    constexpr int k = 96, n = 64;
    for (const int threads : {1, 3}) {
        const auto exec = make_cpu_backend(threads);
        Backend& cpu = *exec;
        for (const Packing packing : packings) {
            const Matrix matrix = pack_as(exec->pool(), packing, hard_table(n, k, 1));
            const Table norm = hard_table(1, k, 2), bias = hard_table(1, n, 3);
            for (const int rows : {1, 5}) {
                const Table x = hard_table(rows, k, 4), before = hard_table(rows, n, 5);
                FusedMatmulOp op;
                op.product.weights = matrix.device_matrix();
                op.product.rows = rows;
                op.norm = {x.row(0), k, norm.row(0), 1e-5f};
                compare_with_separate_ops(cpu, op, before.data);
                op.product.bias = bias.row(0);
                compare_with_separate_ops(cpu, op, before.data);
                op.norm.weight = nullptr;
                op.next = matrix.device_matrix();
                compare_with_separate_ops(cpu, op, before.data);
                op.product.bias = nullptr;
                op.gated = Activations(const_cast<Table&>(x).data.data());  // any address; set per run
                compare_with_separate_ops(cpu, op, before.data);
            }
        }
        EXPECT_TRUE(cpu.synchronize().ok());
    }
}

TEST(CpuBackend, AddsAProductToItsOutput) {
    constexpr int k = 64, n = 48, rows = 3;
    auto exec = make_cpu_backend(2);
    const Matrix matrix = pack_table(exec->pool(), Precision::f32, hard_table(n, k, 1));
    const Table x = hard_table(rows, k, 2), before = hard_table(rows, n, 3);
    Table product(rows, n), sum = before;
    MatmulOp op;
    op.weights = matrix.device_matrix();
    op.x = Activations(const_cast<float*>(x.row(0)));
    op.rows = rows;
    op.y = product.data.data();
    op.y_stride = n;
    exec->matmul(op);
    op.y = sum.data.data();
    op.accumulate = true;
    exec->matmul(op);
    for (int i = 0; i < rows * n; ++i) EXPECT_EQ(sum.data[i], before.data[i] + product.data[i]) << i;
}

TEST(CpuBackend, NormsGroupsAndAddsThem) {
    constexpr int rows = 3, groups = 2, width = 8, stride = groups * width;
    auto exec = make_cpu_backend(1);
    const Table x = hard_table(rows, stride, 1), weight = hard_table(1, width, 2),
                before = hard_table(rows, stride, 3);
    Table expected(rows, width), y = before;
    std::vector<float> copy(numel(rows, stride));
    RmsNormOp op;
    op.x = x.row(0);
    op.x_stride = op.y_stride = stride;
    op.rows = rows;
    op.groups = groups;
    op.width = width;
    op.weight = weight.row(0);
    op.eps = 1e-5f;
    op.y = y.data.data();
    op.add = true;
    op.half = Activations(copy.data());
    op.half_stride = op.half_columns = stride;
    exec->rms_norm(op);
    for (int g = 0; g < groups; ++g) {
        rms_norm(exec->pool(), Rows<const float>(x.row(0) + g * width, rows, width, stride),
                 {weight.row(0), width}, op.eps, expected.view());
        for (int r = 0; r < rows; ++r)
            for (int i = 0; i < width; ++i) {
                const int at = r * stride + g * width + i;
                EXPECT_EQ(copy[at], expected.row(r)[i]);
                EXPECT_NEAR(y.data[at], before.data[at] + expected.row(r)[i], f32_smallest);  // flushed to 0
            }
    }
}

TEST(CpuBackend, KeepsBuffersLongerThanItsPool) {
    DeviceArray<float> array;
    const std::vector<float> values{1, 2, 3};
    {
        auto exec = make_cpu_backend(1);
        ASSERT_TRUE(array.upload((*exec), values));
    }
    EXPECT_EQ(std::memcmp(array.data(), values.data(), 3 * sizeof(float)), 0);
    auto other = make_cpu_backend(1);
    ASSERT_TRUE(array.resize_at_least(*other, 1000));
    EXPECT_EQ(array.data()[999], 0.0f);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(array.data()) % 256, 0u);
}

/// Ranks, and probabilities of token sets along a path, from rows with ties and masked tokens.
TEST(CpuBackend, RanksAndSetProbabilitiesMatchTheirDefinition) {
    constexpr int rows = 5, vocab = 5000, stride = vocab + 3;
    for (const int threads : {1, 3}) {
        auto exec = make_cpu_backend(threads);
        Rng rng(7);
        std::vector<float> logits(numel(rows, stride));
        for (float& logit : logits) logit = static_cast<float>(rng.below(90)) / 8;
        logits[7] = std::numeric_limits<float>::quiet_NaN();
        std::vector<std::int32_t> of, tokens, ranks(40, -7);
        std::vector<float> values(40);
        for (int i = 0; i < 40; ++i) {
            of.push_back(static_cast<std::int32_t>(rng.below(rows)));
            tokens.push_back(8 + static_cast<std::int32_t>(rng.below(vocab - 8)));
        }
        exec->rank({logits.data(), stride, vocab, 40, of.data(), tokens.data(), values.data(), ranks.data()});
        for (int i = 0; i < 40; ++i) {
            const float* row = logits.data() + of[i] * stride;
            EXPECT_EQ(values[i], row[tokens[i]]);
            int before = 0;
            for (int t = 0; t < vocab; ++t)
                before += row[t] > values[i] || (row[t] == values[i] && t < tokens[i]) ? 1 : 0;
            EXPECT_EQ(ranks[i], before) << i;
        }
        // Sets of rows 1 + path; the third entry is beyond the count.
        const std::vector<std::int32_t> path = {0, 2, 3}, count = {2}, first = {0, 5, 0}, sizes = {5, 700, 1};
        const std::vector<float> norms = {12, 12.5f, 13, 13.5f, 14}, lowest = {9, 9, 9, 9, 9};
        std::vector<std::int32_t> ids;
        for (int i = 0; i < 705; ++i) ids.push_back(7 * i + 9);
        std::vector<float> out(3, -7.0f);
        SetProbabilityOp op{logits.data(), stride,       3,          0.9f,       norms.data(),  path.data(),
                            first.data(),  sizes.data(), ids.data(), out.data(), lowest.data(), 1,
                            count.data()};
        exec->sum_set_probability(op);
        for (int i = 0; i < 2; ++i) {
            double sum = 0;
            for (int j = 0; j < sizes[i]; ++j) {
                const float logit = logits[numel(1 + path[i], stride) + ids[first[i] + j]];
                if (logit >= 9)
                    sum += std::min(1.0, std::exp(static_cast<double>(logit * 0.9f - norms[1 + path[i]])));
            }
            EXPECT_NEAR(static_cast<double>(out[i]), std::min(sum, 1.0), 1e-5) << i;
        }
        EXPECT_EQ(out[2], -7.0f);
        ASSERT_TRUE(exec->synchronize().ok());
    }
}

TEST(CpuBackend, EntropiesMatchTheirDefinition) {
    constexpr int rows = 3, vocab = 700;
    auto exec = make_cpu_backend(2);
    Rng rng(5);
    std::vector<float> logits(numel(rows, vocab)), out(rows);
    for (float& logit : logits) logit = static_cast<float>(rng.normal());
    const std::vector<float> norms = {7, 7.5f, 6.9f}, lowest = {-9, 0.5f, 1};
    EntropyOp op{logits.data(), vocab, rows, vocab, 1.25f, norms.data(), lowest.data(), out.data()};
    exec->entropy(op);
    for (int r = 0; r < rows; ++r) {
        double entropy = 0;
        for (int t = 0; t < vocab; ++t) {
            const float logit = logits[numel(r, vocab) + t];
            if (!(logit >= lowest[r])) continue;
            const double p =
                std::min(1.0, std::exp(static_cast<double>(logit) * 1.25 - static_cast<double>(norms[r])));
            entropy -= p * std::log(p + 1e-5);
        }
        EXPECT_NEAR(static_cast<double>(out[r]), entropy, 1e-4) << r;
    }
}

/// Rejection sampling of every node and of the path only accept the same drafts.
TEST(CpuBackend, FusedRejectionSamplingMatchesItsOps) {
    constexpr int nodes = 7, vocab = 40, children = 3;
    const auto exec = make_cpu_backend(2);
    Backend& backend = *exec;
    Rng rng(3);
    int longer = 0;
    for (int turn = 0; turn < 40; ++turn) {
        std::vector<std::int32_t> tokens, parents = {0, 0, 0, 1, 1, 2, 3}, depths = {1, 2, 2, 3, 3, 3, 4};
        std::vector<std::int32_t> sampled_rows;
        std::vector<double> uniforms, accept_uniforms;
        std::vector<float> logits(numel(nodes, vocab)), probs, norms(nodes);
        for (int n = 0; n < nodes; ++n) {
            tokens.push_back(n + 4 * static_cast<int>(rng.below(4)));
            sampled_rows.push_back(turn % 2 == 1 && n < 2 ? -1 : n);  // -1: the children are certain
            uniforms.push_back(rng.uniform());
            double sum = 0;
            for (int t = 0; t < vocab; ++t) {
                float& logit = logits[numel(n, vocab) + t];
                logit = static_cast<float>(rng.normal()) + (t < 20 ? 2.0f : 0.0f);
                sum += std::exp(static_cast<double>(logit));
                probs.push_back(static_cast<float>(t < 20 ? 0.05 : 0.0));
            }
            norms[n] = static_cast<float>(std::log(sum));
        }
        for (int i = 0; i < 5 * children; ++i) accept_uniforms.push_back(rng.uniform());
        TreeRows rows;
        rows.tokens = tokens.data();
        rows.parents = parents.data();
        rows.ancestor_counts = depths.data();
        rows.width = 5;
        rows.sampled_rows = sampled_rows.data();
        rows.uniforms = uniforms.data();
        const auto run = [&](bool fused) {
            std::vector<RejectionNode> listed(nodes);
            std::vector<std::int32_t> drafts(nodes * children), kids(nodes * children), accepted(nodes),
                bonus(nodes), path(6);
            std::vector<double> draft_uniforms(nodes * children);
            std::vector<float> q = probs, saved(probs.size()), bonus_logits(nodes);
            ListChildrenOp list{rows, 0, nodes, children, accept_uniforms.data(), vocab, vocab, -1};
            list.out = listed.data();
            list.drafts = drafts.data();
            list.draft_uniforms = draft_uniforms.data();
            list.children = kids.data();
            const FollowAcceptedOp follow{0,           children,    5,       accepted.data(),
                                          kids.data(), path.data(), &path[5]};
            RejectionSampleOp op;
            op.logits = logits.data();
            op.stride = vocab;
            op.vocab = vocab;
            op.count = nodes;
            op.log_norm = norms.data();
            op.nodes = listed.data();
            op.drafts = drafts.data();
            op.uniforms = draft_uniforms.data();
            op.probs = q.data();
            op.saved = saved.data();
            op.accepted = accepted.data();
            op.bonus = bonus.data();
            op.bonus_logits = bonus_logits.data();
            if (fused)
                backend.sample_and_follow(op, nodes, {&list, 1}, {&follow, 1});
            else
                backend.Backend::sample_and_follow(op, 2, {&list, 1}, {&follow, 1});
            path.resize(path[5]);
            path.push_back(bonus[path.back()]);
            return path;
        };
        const std::vector<std::int32_t> fused = run(true);
        EXPECT_EQ(fused, run(false)) << turn;
        longer += fused.size() > 2 ? 1 : 0;
    }
    EXPECT_GT(longer, 5);
}

/// A union's columns by its index and by its table: every listed token, and rows' candidates with and without
/// negative tokens.
TEST(CpuBackend, FindsColumnsOfAUnionByItsIndex) {
    constexpr int rows = 3, own = 40, k = 5;
    for (const Isa isa : isas()) {
        for (const int vocab : {45, 1024, 5003}) {
            const auto exec = make_cpu_backend(2, isa);
            Backend& cpu = *exec;
            Rng rng(vocab);
            std::vector<std::int32_t> ids;
            for (int m = 0; m < rows; ++m) {
                std::set<std::int32_t> row{vocab - 1};
                while (row.size() < own) row.insert(static_cast<std::int32_t>(rng.below(vocab)));
                if (m == 1) {
                    row.erase(vocab - 1);
                    row.insert(-1);
                }
                ids.insert(ids.end(), row.begin(), row.end());
            }
            std::set<std::int32_t> wanted(ids.begin(), ids.end());
            wanted.erase(-1);
            std::vector<std::int32_t> tokens[2], columns(vocab, -9), size(1), found[2];
            std::vector<std::uint64_t> index(vocab / 32 + 1);
            std::vector<float> gathered[2], values[2], sums[2];
            const Table logits = hard_table(rows, static_cast<int>(wanted.size()), 7);
            for (const bool indexed : {false, true}) {
                tokens[indexed].resize(rows * own);
                cpu.list_unique_tokens({ids.data(), rows * own, vocab, nullptr, tokens[indexed].data(),
                                        columns.data(), size.data(), indexed ? index.data() : nullptr});
                ASSERT_EQ(size[0], std::ssize(wanted));
                tokens[indexed].resize(size[0]);
                EXPECT_TRUE(std::ranges::equal(tokens[indexed], wanted));
                TopKOp best;
                best.logits = logits.row(0);
                best.stride = size[0];
                best.rows = rows;
                best.support = own;
                best.k = k;
                found[indexed].resize(rows * k);
                values[indexed].resize(rows * k);
                sums[indexed].resize(rows);
                best.ids = found[indexed].data();
                best.values = values[indexed].data();
                best.logsumexp = sums[indexed].data();
                best.candidates = ids.data();
                best.candidate_stride = own;
                best.columns = columns.data();
                best.index = indexed ? index.data() : nullptr;
                cpu.topk(best);
                GatherColumnsOp all;
                all.logits = logits.row(0);
                all.rows = 1;
                all.max_count = size[0];
                all.tokens = tokens[indexed].data();
                all.columns = columns.data();
                all.index = best.index;
                gathered[indexed].resize(size[0]);
                all.out = gathered[indexed].data();
                cpu.gather_columns(all);
                EXPECT_TRUE(same_bits(gathered[indexed].data(), logits.row(0), size[0]));
                std::ranges::fill(columns, -9);
            }
            EXPECT_EQ(found[0], found[1]);
            EXPECT_TRUE(same_bits(values[0].data(), values[1].data(), rows * k));
            EXPECT_TRUE(same_bits(sums[0].data(), sums[1].data(), rows));
        }
    }
}

TEST(CpuBackend, NamesAnOpThatItLacks) {
    auto exec = make_cpu_backend(1);
    exec->gather({});
    const Status status = exec->synchronize();
    ASSERT_FALSE(status.ok());
    EXPECT_NE(status.error().message.find("gather"), std::string::npos) << status.error().message;
}

}  // namespace
}  // namespace draftscope::kernels
