#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "kernels/rope.h"
#include "tests/gpu/device_pair.h"

namespace draftscope::testing {
namespace {

using kernels::AttentionHeads;
using kernels::half_t;

/// Rows of several sequences, some in trees, over random keys.
struct Pass {
    AttentionHeads shape;
    std::vector<std::int32_t> sequence, slot, position, prefix, ancestor_first, ancestor_count,
        ancestor_slots, tiles;
    int slots = 0;

    void add(int in_sequence, int at_slot, int at_prefix, const std::vector<std::int32_t>& tail) {
        sequence.push_back(in_sequence);
        slot.push_back(at_slot);
        prefix.push_back(at_prefix);
        position.push_back(at_prefix + static_cast<int>(tail.size()) - 1);
        ancestor_first.push_back(static_cast<std::int32_t>(ancestor_slots.size()));
        ancestor_count.push_back(static_cast<std::int32_t>(tail.size()));
        ancestor_slots.insert(ancestor_slots.end(), tail.begin(), tail.end());
        const int row = rows() - 1;
        if (row > 0 && sequence[row - 1] == in_sequence && tiles.back() < kernels::attention_tile_rows(shape))
            ++tiles.back();
        else
            tiles.insert(tiles.end(), {row, 1});
        slots = std::max(slots, at_slot + 1);
    }
    int rows() const { return static_cast<int>(sequence.size()); }
};

/// Three sequences: a chain, a tree with branches, one row alone.
Pass mixed(const AttentionHeads& shape, int context) {
    Pass pass;
    pass.shape = shape;
    for (int i = 0; i < 5; ++i) pass.add(0, context / 2 + i, context / 2 + i + 1, {});
    const int p = context;
    const std::vector<std::vector<std::int32_t>> paths = {
        {p}, {p, p + 1}, {p, p + 2}, {p, p + 2, p + 3}, {p, p + 1, p + 4}, {p, p + 2, p + 3, p + 5}};
    for (const auto& path : paths) pass.add(1, path.back(), p, path);
    pass.add(2, 0, 1, {});
    return pass;
}

class DeviceAttention : public DevicePair {
  protected:
    /// Attention of the pass on one device; queries and keys depend only on their position.
    std::vector<half_t> run(const Pass& pass, bool on_twin, int extra_blocks = 0) {
        kernels::Backend& on = on_twin ? twin() : device();
        const int q_width = pass.shape.heads * pass.shape.head_dim,
                  kv = pass.shape.kv_heads * pass.shape.head_dim;
        const int rows = pass.rows(), layers = 2, sequences = 3;
        int longest = 0;
        for (int r = 0; r < rows; ++r)
            longest = std::max(longest, pass.prefix[at(r)] + pass.ancestor_count[at(r)]);
        const int slots = std::max(pass.slots, longest) + 3;
        std::vector<kernels::DeviceBuffer> caches;
        std::vector<kernels::KvPlanes> planes;
        for (int s = 0; s < sequences; ++s) {
            std::vector<half_t> values(at(2 * layers) * at(slots) * at(kv));
            for (int plane = 0; plane < 2 * layers; ++plane)
                for (int slot = 0; slot < slots; ++slot) {
                    Rng rng(100 + at(s), at(plane) * 100000 + at(slot));
                    for (int i = 0; i < kv; ++i)
                        values[(at(plane) * at(slots) + at(slot)) * at(kv) + at(i)] =
                            to_half(static_cast<float>(rng.normal()));
                }
            caches.push_back(upload(on, values));
            planes.push_back({caches.back().as<half_t>(), std::int64_t{slots} * kv});
        }
        std::vector<float> q;
        for (int r = 0; r < rows; ++r) {
            Rng rng(7, at(pass.sequence[at(r)]) * 100000 + at(pass.position[at(r)]));
            for (int i = 0; i < q_width; ++i) q.push_back(static_cast<float>(rng.normal()));
        }
        const int blocks = (longest + kernels::attention_block - 1) / kernels::attention_block + extra_blocks;
        const auto table = upload(on, planes), sequence = upload(on, pass.sequence),
                   slot = upload(on, pass.slot), position = upload(on, pass.position),
                   prefix = upload(on, pass.prefix), ancestor_first = upload(on, pass.ancestor_first),
                   ancestor_count = upload(on, pass.ancestor_count),
                   ancestor_slots = upload(on, with_one(pass.ancestor_slots)), tiles = upload(on, pass.tiles),
                   queries = upload(on, q);
        const int stride = kernels::padded_columns(q_width);
        const auto partial = upload(
            on, std::vector<float>(at(rows) * at(pass.shape.heads) * at(blocks) * at(pass.shape.head_dim + 2),
                                   1e30f));
        const auto y = upload(on, std::vector<half_t>(at(rows) * at(stride), 0x7fc0));
        kernels::AttentionOp op;
        op.q = queries.template as<float>();
        op.q_stride = q_width;
        op.rows = rows;
        op.tiles = static_cast<int>(pass.tiles.size()) / 2;
        op.shape = pass.shape;
        op.scale = 1.0f / std::sqrt(static_cast<float>(pass.shape.head_dim));
        op.batch = {table.as<kernels::KvPlanes>(),     sequence.as<std::int32_t>(),
                    slot.as<std::int32_t>(),           position.as<std::int32_t>(),
                    prefix.as<std::int32_t>(),         ancestor_first.as<std::int32_t>(),
                    ancestor_count.as<std::int32_t>(), ancestor_slots.as<std::int32_t>(),
                    tiles.as<std::int32_t>()};
        op.layer = 1;
        op.blocks = blocks;
        op.partial = partial.as<float>();
        op.y = y.as<half_t>();
        op.y_stride = stride;
        on.attention(op);
        std::vector<half_t> out(at(rows) * at(stride));
        on.download(out.data(), op.y.halves, out.size() * sizeof(half_t));
        const Status done = on.synchronize();
        EXPECT_TRUE(done.ok()) << done.error().message;
        return out;
    }

    void check_rope_and_store(const AttentionHeads& shape) {
        const int rows = 5, kv = shape.kv_heads * shape.head_dim, q_width = shape.heads * shape.head_dim,
                  width = q_width + 2 * kv, slots = 30;
        const kernels::RopeTable rope = kernels::make_rope_table(shape.head_dim, 10000.0f, 50);
        std::vector<std::vector<float>> qkv;
        std::vector<std::vector<half_t>> stored;
        for (const bool on_twin : {false, true}) {
            kernels::Backend& on = on_twin ? twin() : device();
            const auto cache = upload(on, std::vector<half_t>(at(4 * slots * kv), 3));
            const std::vector<kernels::KvPlanes> table = {{cache.as<half_t>(), slots * kv}};
            const auto x = upload(on, normal(at(rows * width), 1)), cos = upload(on, rope.cos),
                       sin = upload(on, rope.sin);
            const auto planes = upload(on, table);
            const auto sequence = upload(on, std::vector<std::int32_t>(rows, 0)),
                       slot = upload(on, std::vector<std::int32_t>{4, 29, 7, 0, 11}),
                       position = upload(on, std::vector<std::int32_t>{0, 49, 3, 17, 18});
            kernels::RopeStoreOp op;
            op.qkv = x.as<float>();
            op.stride = width;
            op.rows = rows;
            op.shape = shape;
            op.cos = cos.as<float>();
            op.sin = sin.as<float>();
            op.batch.caches = planes.as<kernels::KvPlanes>();
            op.batch.sequence = sequence.as<std::int32_t>();
            op.batch.slot = slot.as<std::int32_t>();
            op.batch.position = position.as<std::int32_t>();
            op.layer = 1;
            on.rope_store(op);
            qkv.emplace_back(at(rows * width));
            stored.emplace_back(at(4 * slots * kv));
            on.download(qkv.back().data(), x.as<float>(), qkv.back().size() * sizeof(float));
            on.download(stored.back().data(), cache.as<half_t>(), stored.back().size() * sizeof(half_t));
            ASSERT_TRUE(on.synchronize().ok());
        }
        for (int r = 0; r < rows; ++r) {
            const auto q = [&](int which) {
                const auto first = qkv[at(which)].begin() + std::ptrdiff_t{r} * width;
                return std::vector<float>(first, first + q_width);
            };
            expect_close(q(0), q(1), 1e-6, "rotated queries");
        }
        expect_close(widened(stored[0]), widened(stored[1]), 0.004, "stored keys and values");
    }

    static std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }
    static std::vector<std::int32_t> with_one(std::vector<std::int32_t> values) {
        if (values.empty()) values.push_back(0);
        return values;
    }
    template <typename T>
    static kernels::DeviceBuffer upload(kernels::Backend& on, const std::vector<T>& values) {
        kernels::DeviceBuffer buffer;
        EXPECT_TRUE(buffer.reserve(on, values.size() * sizeof(T)));
        on.upload(buffer.as<T>(), values.data(), values.size() * sizeof(T));
        return buffer;
    }
};

TEST_P(DeviceAttention, MatchesTheReferenceForEveryShape) {
    for (const AttentionHeads& shape : {AttentionHeads{9, 3, 64},
                                        {4, 2, 12},
                                        {3, 3, 6},
                                        {32, 8, 128},
                                        {4, 4, 16},
                                        {14, 2, 128},
                                        {5, 5, 8},
                                        {8, 1, 256},
                                        {40, 2, 64}})
        for (const int context : {2, 60, 64, 65, 200, 515}) {
            if (too_large(std::int64_t{shape.heads} * shape.head_dim * context * 50)) continue;
            const Pass pass = mixed(shape, context);
            expect_close(widened(run(pass, false)), widened(run(pass, true)), 0.01,
                         fmt::format("{}/{} heads of {}, context {}", shape.heads, shape.kv_heads,
                                     shape.head_dim, context));
        }
}

/// A row's bits do not depend on the other rows of the call, nor on whether its keys are in the prefix.
TEST_P(DeviceAttention, ARowIsIndependentOfBatchAndTree) {
    const AttentionHeads shape{9, 3, 64};
    const int context = 190, width = kernels::padded_columns(9 * 64);
    Pass chain, tree;
    chain.shape = tree.shape = shape;
    for (int i = 0; i < 7; ++i) {
        chain.add(0, context + i, context + i + 1, {});
        std::vector<std::int32_t> path;
        for (int j = 0; j <= i; ++j) path.push_back(context + j);
        tree.add(0, context + i, context, path);
    }
    const auto together = run(chain, false), as_tree = run(tree, false, 5);
    EXPECT_EQ(together, as_tree);
    for (int i = 0; i < 7; ++i) {
        Pass alone;
        alone.shape = shape;
        alone.add(0, context + i, context + i + 1, {});
        const auto row = run(alone, false);
        EXPECT_TRUE(std::equal(row.begin(), row.end(), together.begin() + std::ptrdiff_t{i} * width)) << i;
    }
}

/// A tile whose rows see more slots than a block has positions is read in parts, with the same bits.
TEST_P(DeviceAttention, WideTreesAreReadInParts) {
    for (const AttentionHeads& shape : {AttentionHeads{4, 4, 16}, {8, 2, 16}, {3, 3, 6}})
        for (const int prefix : {50, 62}) {
            const int stride = kernels::padded_columns(shape.heads * shape.head_dim);
            Pass tree;
            tree.shape = shape;
            const auto path = [&](int i) {
                std::vector<std::int32_t> slots = {prefix};
                if (i > 0) slots.insert(slots.end(), {prefix + 1 + i / 4, prefix + 10 + i});
                return slots;
            };
            for (int i = 0; i < 20; ++i) tree.add(0, path(i).back(), prefix, path(i));
            const auto together = run(tree, false);
            expect_close(widened(together), widened(run(tree, true)), 0.01, fmt::format("prefix {}", prefix));
            for (const int i : {0, 1, 7, 19}) {
                Pass alone;
                alone.shape = shape;
                alone.add(0, path(i).back(), prefix, path(i));
                const auto row = run(alone, false);
                EXPECT_TRUE(std::equal(row.begin(), row.end(), together.begin() + std::ptrdiff_t{i} * stride))
                    << "row " << i << " after " << prefix;
            }
        }
}

TEST_P(DeviceAttention, RopeAndStore) {
    // One block per row, and several.
    for (const AttentionHeads& shape : {AttentionHeads{6, 2, 32}, {30, 2, 80}}) check_rope_and_store(shape);
}

INSTANTIATE_TEST_SUITE_P(Devices, DeviceAttention, device_kinds_with_dtypes(), param_name);

}  // namespace
}  // namespace draftscope::testing
