#include <algorithm>
#include <cmath>
#include <set>

#include "tests/gpu/device_pair.h"
#include "tests/support/beam_expansion.h"

/// Sampled drafts and trees on a device, compared with the reference device and the host.
namespace draftscope::testing {
namespace {

class DraftOps : public DevicePair {};

struct SampledDrafts {
    std::vector<std::int32_t> ids;
    std::vector<float> logprobs, q;
};

/// Uniforms that fall between the two devices' sums are counted; everything else must be equal.
TEST_P(DraftOps, SamplesMatchTheHost) {
    struct Setting {
        int top_k;
        double top_p;
    };
    int rows_seen = 0, same = 0;
    for (const int support : {1, 5, 33, 1500, 70001})
        for (const int k : {1, 5})
            for (const Setting& setting :
                 {Setting{0, 1.0}, Setting{3, 1.0}, Setting{0, 0.7}, Setting{20, 0.9}}) {
                const int rows = 4, stride = support + 3;
                if (too_large(std::int64_t{rows} * support)) continue;
                std::vector<float> logits = normal(rows * stride, 7);
                for (std::size_t i = 0; i < logits.size(); i += 11) logits[i] = NAN;
                for (std::size_t i = 4; i < logits.size(); i += 13) logits[i] = logits[i - 1];
                // A row without any weight, and one with a single token that can be sampled.
                std::fill_n(logits.begin(), stride, -INFINITY);
                if (rows > 1 && support > 1) {
                    std::fill_n(logits.begin() + stride, stride, -1000.0f);
                    logits[stride + support / 2] = 3.0f;
                }
                std::vector<double> uniforms;
                Rng rng(5);
                for (int i = 0; i < rows * k; ++i) uniforms.push_back(rng.uniform());
                const Both<float> d_logits(device(), twin(), logits),
                    logprobs(device(), twin(), rows * k, 9.0f), lowest(device(), twin(), rows, 9.0f);
                const Both<double> d_uniforms(device(), twin(), uniforms);
                const Both<std::int32_t> ids(device(), twin(), rows * k, -7),
                    last(device(), twin(), rows, -7);
                SampledDrafts out[2];
                for (const bool on_twin : {false, true}) {
                    kernels::SampleWithoutReplacementOp op;
                    op.logits = d_logits.on(on_twin);
                    op.stride = stride;
                    op.rows = rows;
                    op.support = support;
                    op.k = k;
                    op.temperature = 0.8;
                    op.top_k = setting.top_k;
                    op.top_p = setting.top_p;
                    op.uniforms = d_uniforms.on(on_twin);
                    op.ids = ids.on(on_twin);
                    op.logprobs = logprobs.on(on_twin);
                    op.min_logit = lowest.on(on_twin);
                    op.last_tied_id = last.on(on_twin);
                    (on_twin ? twin() : device()).sample_without_replacement(op);
                    out[on_twin ? 1 : 0] = {ids.read(on_twin), logprobs.read(on_twin),
                                            d_logits.read(on_twin)};
                }
                for (int r = 0; r < rows; ++r) {
                    const std::size_t at = r * stride, first = r * k;
                    double sum = 0;
                    int some = 0;
                    for (int c = 0; c < support; ++c) {
                        const float a = out[0].q[at + c], b = out[1].q[at + c];
                        ASSERT_NEAR(a, b, 1e-6 + 1e-5 * static_cast<double>(b)) << support << " row " << r;
                        ASSERT_EQ(a > 0, b > 0);
                        sum += static_cast<double>(a);
                        some += a > 0;
                    }
                    EXPECT_TRUE(some == 0 || std::fabs(sum - 1) < 1e-4) << sum;
                    for (int c = support; c < stride; ++c) {  // unchanged
                        const float before = logits[at + c];
                        EXPECT_TRUE(out[0].q[at + c] == before || std::isnan(before));
                    }
                    std::set<std::int32_t> seen;
                    for (int d = 0; d < k; ++d) {
                        const std::int32_t id = out[0].ids[first + d];
                        ASSERT_EQ(id < 0, d >= some) << support << " row " << r;
                        if (id < 0) continue;
                        ASSERT_LT(id, support);
                        EXPECT_TRUE(seen.insert(id).second);
                        EXPECT_GT(out[0].q[at + id], 0.0f);
                        EXPECT_NEAR(out[0].logprobs[first + d], std::log(out[0].q[at + id]), 1e-5);
                    }
                    ++rows_seen;
                    same += std::equal(out[0].ids.begin() + r * k, out[0].ids.begin() + (r + 1) * k,
                                       out[1].ids.begin() + r * k);
                }
            }
    EXPECT_GT(rows_seen, 60);
    EXPECT_GE(same, rows_seen * 97 / 100);
}

/// Rows with per-row columns: entries after them are not read, and ids are their tokens.
TEST_P(DraftOps, SamplesOfOwnColumnsMatchRowsOfThatLength) {
    constexpr int rows = 6, max_columns = 90, stride = 95, k = 4;
    const std::vector<std::int32_t> sizes = {0, 1, 3, 64, 89, max_columns};
    std::vector<std::int32_t> tokens(rows * stride, -5);
    for (int r = 0; r < rows; ++r)
        for (int c = 0; c < sizes[r]; ++c) tokens[r * stride + c] = 1000 * r + 3 * c;
    std::vector<float> logits = normal(rows * stride, 11);
    for (int r = 0; r < rows; ++r)
        std::fill(logits.begin() + r * stride + sizes[r], logits.begin() + (r + 1) * stride, 50.0f);
    std::vector<double> uniforms;
    Rng rng(6);
    for (int i = 0; i < rows * k; ++i) uniforms.push_back(rng.uniform());
    for (const auto& [top_k, top_p] : {std::pair(0, 1.0), {2, 1.0}, {70, 0.9}}) {
        std::vector<std::int32_t> drawn[2];
        for (const bool on_twin : {false, true}) {
            kernels::Backend& on = on_twin ? twin() : device();
            const Both<float> all(device(), twin(), logits), logprobs(device(), twin(), rows * k, 9.0f),
                lowest(device(), twin(), rows, 9.0f);
            const Both<double> numbers(device(), twin(), uniforms);
            const Both<std::int32_t> names(device(), twin(), tokens), own(device(), twin(), sizes),
                ids(device(), twin(), rows * k, -7), last(device(), twin(), rows, -7);
            kernels::SampleWithoutReplacementOp op{all.on(on_twin),
                                                   stride,
                                                   rows,
                                                   max_columns,
                                                   k,
                                                   0.8,
                                                   top_k,
                                                   top_p,
                                                   numbers.on(on_twin),
                                                   ids.on(on_twin),
                                                   logprobs.on(on_twin),
                                                   lowest.on(on_twin),
                                                   last.on(on_twin),
                                                   own.on(on_twin),
                                                   names.on(on_twin)};
            on.sample_without_replacement(op);
            const std::vector<float> q = all.read(on_twin);
            drawn[on_twin ? 1 : 0] = ids.read(on_twin);
            for (int r = 0; r < rows; ++r) {
                for (int c = sizes[r]; c < stride; ++c) EXPECT_EQ(q[r * stride + c], 50.0f);
                // The same row alone, with its exact length.
                if (sizes[r] == 0) continue;
                const Both<float> row(
                    device(), twin(),
                    std::vector<float>(logits.begin() + r * stride, logits.begin() + r * stride + sizes[r]));
                kernels::SampleWithoutReplacementOp alone = op;
                alone.logits = row.on(on_twin);
                alone.rows = 1;
                alone.support = sizes[r];
                alone.uniforms += r * k;
                alone.sizes = alone.tokens = nullptr;
                on.sample_without_replacement(alone);
                const auto found = row.read(on_twin);
                EXPECT_TRUE(std::equal(found.begin(), found.end(), q.begin() + r * stride)) << r;
                const auto columns = ids.read(on_twin);
                for (int d = 0; d < k; ++d) {
                    const std::int32_t column = columns[d], id = drawn[on_twin ? 1 : 0][r * k + d];
                    EXPECT_EQ(id, column < 0 ? -1 : 1000 * r + 3 * column);
                }
            }
            for (int d = 0; d < k; ++d) EXPECT_EQ(drawn[on_twin ? 1 : 0][d], -1);  // nothing to sample from
        }
        EXPECT_EQ(drawn[0], drawn[1]) << top_k;
    }
}

TEST_P(DraftOps, GatherColumnsReadsEachRowsCandidates) {
    constexpr int rows = 5, max_columns = 1500, d_columns = 2000, vocab = 3000;
    Rng rng(8);
    std::vector<std::int32_t> places, tokens, sizes = {0, 1, 1024, 1025, max_columns};
    for (int t = 0; t < vocab; ++t) places.push_back(static_cast<std::int32_t>(rng.below(d_columns)));
    for (int i = 0; i < rows * max_columns; ++i)
        tokens.push_back(static_cast<std::int32_t>(rng.below(vocab)));
    const std::vector<float> logits = normal(rows * d_columns, 9);
    for (const bool all : {false, true}) {
        const Both<float> from(device(), twin(), logits),
            out(device(), twin(), rows * (max_columns + 3), 7.0f);
        const Both<std::int32_t> own(device(), twin(), tokens), count(device(), twin(), sizes),
            columns(device(), twin(), places);
        for (const bool on_twin : {false, true}) {
            kernels::GatherColumnsOp op;
            op.logits = from.on(on_twin);
            op.stride = d_columns;
            op.rows = rows;
            op.max_count = op.token_stride = max_columns;
            op.tokens = own.on(on_twin);
            op.sizes = all ? nullptr : count.on(on_twin);
            op.columns = columns.on(on_twin);
            op.out = out.on(on_twin);
            op.out_stride = max_columns + 3;
            (on_twin ? twin() : device()).gather_columns(op);
            const std::vector<float> found = out.read(on_twin);
            for (int r = 0; r < rows; ++r)
                for (int i = 0; i < max_columns + 3; ++i) {
                    const bool valid = i < (all ? max_columns : sizes[r]);
                    const float expected =
                        valid ? logits[r * d_columns + places[tokens[r * max_columns + i]]] : 7.0f;
                    ASSERT_EQ(found[r * (max_columns + 3) + i], expected) << r << " " << i;
                }
        }
    }
}

/// A tree on both devices, level by level, and in the host's expansion. Some nodes have few candidates, or
/// none.
struct SampledTree {
    SampledTree(kernels::Backend& device_in, kernels::Backend& twin_in, const TreeSpec& spec_in,
                std::uint64_t seed, bool sampled_in)
        : backend(device_in),
          twin(twin_in),
          spec(spec_in),
          sampled(sampled_in),
          rng(seed),
          candidates(spec.topk + spec.depth * spec.topk * spec.topk),
          width(spec.depth + 2),
          rows(first_row + spec.nodes),
          pool_tokens(ints(candidates)),
          pool_parents(ints(candidates)),
          pool_rows(ints(candidates)),
          places(ints(kernels::max_topk)),
          tokens(ints(spec.topk)),
          parents(ints(spec.topk)),
          pool_logprobs(floats(candidates)),
          pool_scores(floats(candidates)),
          scores(floats(kernels::max_topk)),
          row_tokens(ints(rows)),
          row_parents(ints(rows)),
          positions(ints(rows)),
          sizes(ints(rows)),
          ancestor_slots(ints(rows * width)),
          sampled_rows(ints(rows)),
          drafts(ints(rows * spec.topk)),
          children(ints(rows * spec.topk)),
          path(ints(width + 1)),
          row_logprobs(floats(rows)),
          uniforms_by_depth(backend, twin, numbers(width)),
          uniforms_by_order(backend, twin, numbers(width * spec.topk)),
          uniforms(backend, twin, rows, -7.0),
          draft_uniforms(backend, twin, rows * spec.topk, -7.0),
          listed(backend, twin, std::vector<kernels::RejectionNode>(rows)),
          sums(backend, twin, kernels::max_topk, 0.0f) {
        host.reset(99, spec, sampled);
        for (int level = 0; level <= spec.depth; ++level) grow(level);
        make_rows(true);
        accepted.assign(rows, -1);
        const auto nodes = listed.read(true);
        for (std::size_t r = first_row; r < nodes.size(); ++r)
            if (nodes[r].drafts > 0 && rng.below(4) != 0)
                accepted[r] = static_cast<std::int32_t>(rng.below(nodes[r].drafts));
        make_rows(false);
        for (const bool on_twin : {false, true}) follow(on_twin);
    }

    Both<std::int32_t> ints(std::size_t count) { return {backend, twin, count, -7}; }
    Both<float> floats(std::size_t count) { return {backend, twin, count, 7.0f}; }
    std::vector<double> numbers(int count) {
        std::vector<double> values;
        for (int i = 0; i < count; ++i) values.push_back(rng.uniform());
        return values;
    }

    void grow(int level);
    void enqueue_level(bool on_twin, int level, const Both<std::int32_t>& ids, const Both<float>& logprobs,
                       const Both<std::int32_t>& next);
    void make_rows(bool on_twin);
    void follow(bool on_twin);

    static constexpr int first_row = 3;
    kernels::Backend &backend, &twin;
    TreeSpec spec;
    bool sampled;  ///< else the candidates are the best of their rows
    Rng rng;
    BeamExpansion host;
    int candidates, width, rows, proposed = 0, sampled_first = 1;
    Both<std::int32_t> pool_tokens, pool_parents, pool_rows, places, tokens, parents;
    Both<float> pool_logprobs, pool_scores, scores;
    Both<std::int32_t> row_tokens, row_parents, positions, sizes, ancestor_slots, sampled_rows, drafts,
        children, path;
    Both<float> row_logprobs;
    Both<double> uniforms_by_depth, uniforms_by_order, uniforms, draft_uniforms;
    Both<kernels::RejectionNode> listed;
    Both<float> sums;
    std::unique_ptr<Both<std::int32_t>> above;
    std::vector<std::int32_t> accepted;
};

void SampledTree::grow(int level) {
    const int topk = spec.topk, level_rows = level == 0 ? 1 : topk;
    std::vector<std::int32_t> ids;
    std::vector<float> logprobs;
    std::vector<int> counts;
    for (int r = 0; r < level_rows; ++r) {
        const int drawn = rng.below(3) == 0 ? static_cast<int>(rng.below(topk + 1)) : topk;
        counts.push_back(level == 0 ? std::max(drawn, 1) : drawn);
        for (int c = 0; c < topk; ++c) {
            const bool valid = c < counts.back();
            ids.push_back(valid ? 20 * r + c : -1);
            logprobs.push_back(valid ? -0.5f * static_cast<float>(rng.below(9)) : -INFINITY);
        }
    }
    if (level == 0) {
        host.start(std::span(ids).first(counts[0]), std::span(logprobs).first(counts[0]));
    } else {
        counts.resize(host.beam().size());  // the device's first rows are the host's
        host.extend(ids, logprobs, counts);
    }
    const Both<std::int32_t> d_ids(backend, twin, ids);
    const Both<float> d_logprobs(backend, twin, logprobs);
    auto next = std::make_unique<Both<std::int32_t>>(ints(topk * (level + 1)));
    for (const bool on_twin : {false, true}) enqueue_level(on_twin, level, d_ids, d_logprobs, *next);
    above = std::move(next);
    proposed += level_rows * topk;
    sampled_first += level < spec.depth ? topk : 0;
}

void SampledTree::enqueue_level(bool on_twin, int level, const Both<std::int32_t>& ids,
                                const Both<float>& logprobs, const Both<std::int32_t>& next) {
    kernels::BeamOp op;
    op.sampled = sampled;
    op.logsumexp = sums.on(on_twin);
    op.level = level;
    op.rows = level == 0 ? 1 : spec.topk;
    op.k = spec.topk;
    op.ids = ids.on(on_twin);
    op.logits = logprobs.on(on_twin);
    op.pool_tokens = pool_tokens.on(on_twin) + proposed;
    op.pool_logprobs = pool_logprobs.on(on_twin) + proposed;
    op.pool_scores = pool_scores.on(on_twin) + proposed;
    op.pool_parents = pool_parents.on(on_twin) + proposed;
    op.pool_rows = pool_rows.on(on_twin) + proposed;
    op.next_first_row = sampled_first;
    op.row_indices = places.on(on_twin);
    op.first_index = proposed;
    op.keep = level < spec.depth ? spec.topk : 0;
    op.scores = scores.on(on_twin);
    op.next_tokens = tokens.on(on_twin);
    op.next_rows = parents.on(on_twin);
    op.ancestor_slots = above ? above->on(on_twin) : nullptr;
    op.next_ancestor_slots = next.on(on_twin);
    (on_twin ? twin : backend).beam(std::span(&op, 1));
}

void SampledTree::make_rows(bool on_twin) {
    kernels::Backend& on = on_twin ? twin : backend;
    kernels::RerankOp op;
    op.sampled = sampled;
    op.candidates = candidates;
    op.nodes = spec.nodes;
    op.by_score = spec.order == TreeOrder::fr;
    op.pool_tokens = pool_tokens.on(on_twin);
    op.pool_logprobs = pool_logprobs.on(on_twin);
    op.pool_scores = pool_scores.on(on_twin);
    op.pool_parents = pool_parents.on(on_twin);
    op.pool_rows = pool_rows.on(on_twin);
    op.root = 99;
    op.first_row = first_row;
    op.first_slot = 50;
    op.first_position = 70;
    op.uniforms = uniforms_by_depth.on(on_twin);
    op.rows.tokens = row_tokens.on(on_twin);
    op.rows.parents = row_parents.on(on_twin);
    op.rows.positions = positions.on(on_twin);
    op.rows.ancestor_counts = sizes.on(on_twin);
    op.rows.ancestor_slots = ancestor_slots.on(on_twin);
    op.rows.width = width;
    op.rows.logprobs = row_logprobs.on(on_twin);
    op.rows.sampled_rows = sampled_rows.on(on_twin);
    op.rows.uniforms = uniforms.on(on_twin);
    on.rerank(std::span(&op, 1));
    static constexpr std::int32_t certain = -1;
    if (!sampled) on.upload(op.rows.sampled_rows + first_row + 1, &certain, sizeof certain);
    kernels::ListChildrenOp list;
    list.rows = op.rows;
    list.first_row = first_row;
    list.nodes = spec.nodes;
    list.max_count = spec.topk;
    list.uniforms = uniforms_by_order.on(on_twin);
    list.stride = 40;
    list.support = 33;
    list.first_id = -1;
    list.out = listed.on(on_twin);
    list.drafts = drafts.on(on_twin);
    list.draft_uniforms = draft_uniforms.on(on_twin);
    list.children = children.on(on_twin);
    on.list_children(std::span(&list, 1));
}

void SampledTree::follow(bool on_twin) {
    kernels::Backend& on = on_twin ? twin : backend;
    kernels::DeviceBuffer kept;
    ASSERT_TRUE(kept.reserve(on, accepted.size() * sizeof(std::int32_t)));
    on.upload(kept.as<void>(), accepted.data(), accepted.size() * sizeof(std::int32_t));
    const kernels::FollowAcceptedOp op{first_row,
                                       spec.topk,
                                       width,
                                       kept.as<std::int32_t>(),
                                       children.on(on_twin),
                                       path.on(on_twin),
                                       path.on(on_twin) + width};
    on.follow_accepted(std::span(&op, 1));
    ASSERT_TRUE(on.synchronize().ok());
}

void expect_same_on_both(const SampledTree& tree) {
    for (const auto* values :
         {&tree.row_tokens, &tree.row_parents, &tree.positions, &tree.sizes, &tree.ancestor_slots,
          &tree.sampled_rows, &tree.drafts, &tree.children, &tree.path})
        EXPECT_EQ(values->read(false), values->read(true));
    EXPECT_EQ(tree.row_logprobs.read(false), tree.row_logprobs.read(true));
    EXPECT_EQ(tree.uniforms.read(false), tree.uniforms.read(true));
    EXPECT_EQ(tree.draft_uniforms.read(false), tree.draft_uniforms.read(true));
    const auto a = tree.listed.read(false), b = tree.listed.read(true);
    for (std::size_t r = SampledTree::first_row; r < a.size(); ++r) {
        EXPECT_EQ(a[r].row, b[r].row);
        EXPECT_EQ(a[r].first_draft, b[r].first_draft);
        EXPECT_EQ(a[r].drafts, b[r].drafts);
        EXPECT_EQ(a[r].first_prob, b[r].first_prob);
        EXPECT_EQ(a[r].support, b[r].support);
        EXPECT_EQ(a[r].first_id, b[r].first_id);
        EXPECT_EQ(a[r].uniform, b[r].uniform);
    }
}

TEST_P(DraftOps, TreesWithMissingCandidatesMatchTheHost) {
    int left_out = 0, nodes_seen = 0, steps = 0;
    for (const TreeOrder order : {TreeOrder::eagle, TreeOrder::fr})
        for (const auto& [depth, topk, nodes] :
             {std::tuple(0, 1, 2), {0, 4, 5}, {2, 3, 12}, {3, 4, 30}, {4, 3, 40}, {2, 10, 60}})
            for (std::uint64_t seed = 1; seed <= 6; ++seed) {
                const TreeSpec spec{depth, topk, std::min(nodes, topk + depth * topk * topk + 1), order};
                SampledTree tree(device(), twin(), spec, seed, seed % 2 == 0);
                expect_same_on_both(tree);
                const DraftTree expected = tree.host.rerank();
                const auto tokens = tree.row_tokens.read(false), parents = tree.row_parents.read(false);
                ASSERT_LE(expected.size(), spec.nodes);
                // Missing candidates come last, each its own parent.
                for (int n = 1; n < spec.nodes; ++n, ++nodes_seen) {
                    const std::size_t at = SampledTree::first_row + n;
                    const bool valid = n < expected.size();
                    EXPECT_EQ(parents[at], SampledTree::first_row + (valid ? expected.parents[n] : n));
                    EXPECT_EQ(tokens[at], valid ? expected.tokens[n] : 0);
                    left_out += valid ? 0 : 1;
                }
                steps += tree.path.read(false)[tree.width] - 1;
            }
    EXPECT_GT(nodes_seen, 500);
    EXPECT_GT(left_out, 15);
    EXPECT_GT(steps, 15);
}

INSTANTIATE_TEST_SUITE_P(Devices, DraftOps, device_kinds(), param_name);

}  // namespace
}  // namespace draftscope::testing
