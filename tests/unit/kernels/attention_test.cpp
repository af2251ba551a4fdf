#include "kernels/cpu/attention.h"

#include <algorithm>
#include <limits>
#include <string>

#include "kernels/ops/float16.h"
#include "kernels_test_util.h"

namespace draftscope::kernels {
namespace {

constexpr KvType kv_types[] = {KvType::f32, KvType::f16};

std::string name_of(KvType type) {
    return type == KvType::f32 ? "f32" : "f16";
}

/// Keys or values in the cache's format, and the values they stand for.
struct StoredValues {
    StoredValues(const AttentionShape& shape, int slots, std::uint64_t seed, bool keys)
        : meant(slots, shape.kv_heads * shape.head_dim), type(shape.kv), are_keys(keys) {
        Rng rng(seed);
        for (float& v : meant.data) v = static_cast<float>(rng.normal());
        if (type == KvType::f16)
            for (float& v : meant.data) v = f16_to_float(float_to_f16(v));
        // Unused slots may hold anything.
        stored.assign(key_bytes(type, meant.cols, slots), std::byte{0xff});
        for (int slot = 0; slot < slots; ++slot) put(slot, meant.row(slot));
    }
    void put(int slot, const float* row) {
        const auto exec = make_thread_pool(1);
        are_keys ? store_key(*exec, type, row, meant.cols, slot, stored.data())
                 : store_value(*exec, type, row, meant.cols, slot, stored.data());
    }

    Table meant;
    KvType type;
    bool are_keys;
    std::vector<std::byte> stored;
};

struct Cache {
    Cache(const AttentionShape& shape, int slots, std::uint64_t seed)
        : keys(shape, slots, seed, true), values(shape, slots, seed + 1, false) {}
    AttentionQuery query(const float* q, float* out, int prefix,
                         std::span<const int> ancestor_slots = {}) const {
        return {q, out, keys.stored.data(), values.stored.data(), prefix, ancestor_slots};
    }
    StoredValues keys;
    StoredValues values;
};

/// Runs the test for both types of keys and values.
template <typename Test>
void with_both_types(AttentionShape shape, Test test) {
    for (const KvType type : kv_types) {
        SCOPED_TRACE(name_of(type));
        shape.kv = type;
        test(shape);
    }
}

Table make_queries(const AttentionShape& shape, int count, std::uint64_t seed) {
    Table q(count, shape.heads * shape.head_dim);
    Rng rng(seed);
    for (float& v : q.data) v = static_cast<float>(rng.normal());
    return q;
}

std::vector<double> reference(const AttentionShape& shape, const float* q, const Cache& cache,
                              const std::vector<int>& slots) {
    std::vector<double> out(static_cast<std::size_t>(shape.heads * shape.head_dim), 0.0);
    for (int h = 0; h < shape.heads; ++h) {
        const int kv = h / (shape.heads / shape.kv_heads) * shape.head_dim;
        std::vector<double> weight;
        double top = -1e300;
        for (const int slot : slots) {
            double dot = 0;
            for (int d = 0; d < shape.head_dim; ++d)
                dot += static_cast<double>(q[h * shape.head_dim + d]) * cache.keys.meant.at(slot, kv + d);
            weight.push_back(dot * static_cast<double>(shape.scale));
            top = std::max(top, weight.back());
        }
        double sum = 0;
        for (double& w : weight) sum += w = std::exp(w - top);
        for (std::size_t p = 0; p < slots.size(); ++p) {
            for (int d = 0; d < shape.head_dim; ++d)
                out[h * shape.head_dim + d] += weight[p] / sum * cache.values.meant.at(slots[p], kv + d);
        }
    }
    return out;
}

TEST(Attention, MatchesDoublePrecision) {
    const AttentionShape shapes[] = {
        {9, 3, 64, 0.125f}, {4, 4, 16, 0.25f}, {5, 1, 80, 0.1f}, {2, 1, 20, 0.2f}, {8, 2, 128, 0.09f}};
    const auto check = [](const AttentionShape& shape, ThreadPool& exec) {
        for (const int positions : {1, 2, 15, 16, 17, 127, 128, 129, 700}) {
            const Cache cache(shape, positions, 1);
            Table q = make_queries(shape, 1, 3);
            for (int i = 0; i < shape.head_dim; ++i) q.row(0)[i] *= 30.0f;  // one dominant key per head
            Table out(1, q.cols);
            const AttentionQuery query = cache.query(q.row(0), out.row(0), positions);
            attention(exec, shape, {&query, 1});
            std::vector<int> slots(static_cast<std::size_t>(positions));
            for (int p = 0; p < positions; ++p) slots[p] = p;
            const std::vector<double> expected = reference(shape, q.row(0), cache, slots);
            for (int i = 0; i < q.cols; ++i) {
                // Scores reach 100, so exp of their f32 rounding error is off by up to 1e-5.
                ASSERT_NEAR(out.at(0, i), expected[i], 6e-5)
                    << name_of(exec.isa()) << " dim " << shape.head_dim << " positions " << positions;
            }
        }
    };
    for (const Isa isa : isas()) {
        for (const int threads : {1, 2}) {
            auto exec = make_thread_pool(threads, isa);
            for (const AttentionShape& shape : shapes)
                with_both_types(shape, [&](const AttentionShape& typed) { check(typed, *exec); });
        }
    }
}

TEST(Attention, KeysAndValuesAreRoundedToNearestAndStayFinite) {
    std::vector<float> values{0.0f,
                              -0.0f,
                              1.0f,
                              0x1.ffcp-1f + 0x1p-12f,  // halfway between two fp16 values
                              65504.0f,
                              65519.0f,
                              65520.0f,
                              -1e30f,
                              std::numeric_limits<float>::infinity(),
                              -std::numeric_limits<float>::infinity(),
                              std::numeric_limits<float>::quiet_NaN(),
                              0x1p-24f,
                              0x1p-25f,
                              0x1.8p-25f,
                              1e-40f,
                              -3e-6f};
    Rng rng(4);
    while (values.size() < 67)
        values.push_back(static_cast<float>(rng.normal() * std::exp(8.0 * rng.normal())));
    std::vector<std::uint16_t> expected;
    for (const float v : values)
        expected.push_back(float_to_f16(std::isnan(v) ? v : std::clamp(v, -65504.0f, 65504.0f)));
    for (const Isa isa : isas()) {
        const auto exec = make_thread_pool(1, isa);
        for (const std::size_t n : {std::size_t{1}, std::size_t{16}, std::size_t{31}, values.size()}) {
            std::vector<std::uint16_t> out(n + 1, 0x1234);
            store_value(*exec, KvType::f16, values.data(), static_cast<int>(n), 0, out.data());
            for (std::size_t i = 0; i < n; ++i) {
                if (std::isnan(values[i])) {
                    EXPECT_TRUE(std::isnan(f16_to_float(out[i]))) << name_of(isa);
                } else {
                    EXPECT_EQ(out[i], expected[i]) << name_of(isa) << " of " << values[i];
                }
            }
            EXPECT_EQ(out[n], 0x1234) << "written past the end by " << name_of(isa);
        }
    }
}

/// A random tree after a prefix. Node i is in slot prefix + i; its chain is the prefix and its ancestors.
struct Tree {
    Tree(int prefix_in, int nodes, std::uint64_t seed) : prefix(prefix_in) {
        Rng rng(seed);
        for (int i = 0; i < nodes; ++i) {
            const int parent = i == 0 ? -1 : static_cast<int>(rng.below(static_cast<std::uint32_t>(i)));
            std::vector<int> path = parent < 0 ? std::vector<int>{} : paths[parent];
            path.push_back(prefix + i);
            paths.push_back(std::move(path));
        }
    }
    int prefix;
    std::vector<std::vector<int>> paths;
};

void tree_slots_give_the_bits_of_a_chain(const AttentionShape& shape) {
    for (const Isa isa : isas()) {
        for (const int prefix : {0, 1, 15, 126, 500}) {
            const Tree tree(prefix, 24, static_cast<std::uint64_t>(prefix));
            Cache cache(shape, prefix + 24, 5);
            const Table q = make_queries(shape, 24, 7);
            Table together(24, q.cols);
            std::vector<AttentionQuery> batch;
            for (int i = 0; i < 24; ++i)
                batch.push_back(cache.query(q.row(i), together.row(i), prefix, tree.paths[i]));
            auto exec = make_thread_pool(2, isa);
            attention(*exec, shape, batch);
            for (int i = 0; i < 24; ++i) {
                // The same chain, committed: its keys moved to consecutive slots of another cache.
                Cache chain = cache;
                const std::vector<int>& path = tree.paths[i];
                for (std::size_t p = 0; p < path.size(); ++p) {
                    const int slot = prefix + static_cast<int>(p);
                    chain.keys.put(slot, cache.keys.meant.row(path[p]));
                    chain.values.put(slot, cache.values.meant.row(path[p]));
                }
                Table alone(1, q.cols);
                const AttentionQuery query =
                    chain.query(q.row(i), alone.row(0), prefix + static_cast<int>(path.size()));
                attention(*exec, shape, {&query, 1});
                ASSERT_TRUE(same_bits(alone.row(0), together.row(i), q.cols))
                    << name_of(isa) << " prefix " << prefix << " node " << i;
            }
        }
    }
}

TEST(Attention, TreeSlotsGiveTheBitsOfAChain) {
    with_both_types({9, 3, 64, 0.125f}, tree_slots_give_the_bits_of_a_chain);
}

void nothing_else_changes_a_bit(const AttentionShape& shape) {
    constexpr int count = 70;
    for (const Isa isa : isas()) {
        // Queries of two sequences, at positions from 1 to 1100.
        const Cache first(shape, 1100, 1);
        const Cache second(shape, 1100, 2);
        const Table q = make_queries(shape, count, 3);
        const auto query = [&](int i, float* out) {
            const Cache& cache = i % 3 == 0 ? second : first;
            return cache.query(q.row(i), out, 1 + i * i % 1100);
        };
        Table expected(count, q.cols);
        auto single = make_thread_pool(1, isa);
        for (int i = 0; i < count; ++i) {
            const AttentionQuery one = query(i, expected.row(i));
            attention(*single, shape, {&one, 1});
        }
        for (const int threads : {1, 2, 3, 4}) {
            auto exec = make_thread_pool(threads, isa);
            for (const int batch : {1, 3, 9, 70}) {
                Table out(count, q.cols);
                for (int begin = 0; begin < count; begin += batch) {
                    std::vector<AttentionQuery> queries;
                    for (int i = begin; i < std::min(begin + batch, count); ++i) {
                        const int shuffled = (i * 37) % count;
                        queries.push_back(query(shuffled, out.row(shuffled)));
                    }
                    attention(*exec, shape, queries);
                }
                ASSERT_TRUE(same_bits(out.row(0), expected.row(0), count * q.cols))
                    << name_of(isa) << " threads " << threads << " batch " << batch;
            }
        }
    }
}

TEST(Attention, IsIndependentOfThreadsBatchAndOrder) {
    with_both_types({9, 3, 64, 0.125f}, nothing_else_changes_a_bit);
}

void unused_slots_may_hold_anything(const AttentionShape& shape) {
    auto exec = make_thread_pool(1);
    Cache cache(shape, 8, 1);
    const Table q = make_queries(shape, 1, 2);
    const std::vector<int> ancestor_slots = {6};
    Table clean(1, q.cols);
    Table dirty(1, q.cols);
    AttentionQuery query = cache.query(q.row(0), clean.row(0), 4, ancestor_slots);
    attention(*exec, shape, {&query, 1});
    for (const int slot : {4, 5, 7}) {
        const std::vector<float> nan(static_cast<std::size_t>(cache.keys.meant.cols),
                                     std::numeric_limits<float>::quiet_NaN());
        cache.keys.put(slot, nan.data());
        cache.values.put(slot, nan.data());
    }
    query.out = dirty.row(0);
    attention(*exec, shape, {&query, 1});
    EXPECT_TRUE(same_bits(clean.row(0), dirty.row(0), q.cols));
}

/// After the move, a path's keys are contiguous after the prefix, whatever block they come from.
TEST(Attention, MovedKeysAreContiguous) {
    for (const KvType type : kv_types) {
        const AttentionShape shape{4, 2, 20, 0.2f, type};
        const StoredValues before(shape, 50, 3, true);
        StoredValues moved = before, expected = before;
        for (const auto& [from, to] : {std::pair{17, 15}, {18, 16}, {49, 17}, {3, 2}}) {
            move_key(type, before.meant.cols, moved.stored.data(), from, to);
            expected.put(to, before.meant.row(from));
        }
        EXPECT_EQ(moved.stored, expected.stored) << name_of(type);
    }
}

TEST(Attention, UnusedSlotsMayHoldAnything) {
    with_both_types({2, 1, 16, 0.25f}, unused_slots_may_hold_anything);
}

}  // namespace
}  // namespace draftscope::kernels
