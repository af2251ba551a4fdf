#include "kernels/attention.h"

#include <algorithm>

#include "kernels_test_util.h"

namespace draftscope::kernels {
namespace {

struct Cache {
    Cache(const AttentionShape& shape, int slots, std::uint64_t seed)
        : keys(normal(slots, shape, seed)), values(normal(slots, shape, seed + 1)) {}
    static Table normal(int slots, const AttentionShape& shape, std::uint64_t seed) {
        Table table(slots, shape.kv_heads * shape.head_dim);
        Rng rng(seed);
        for (float& v : table.data) v = static_cast<float>(rng.normal());
        return table;
    }
    Table keys;
    Table values;
};

Table queries_of(const AttentionShape& shape, int count, std::uint64_t seed) {
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
            for (int d = 0; d < shape.head_dim; ++d) {
                dot += static_cast<double>(q[h * shape.head_dim + d]) * cache.keys.at(slot, kv + d);
            }
            weight.push_back(dot * static_cast<double>(shape.scale));
            top = std::max(top, weight.back());
        }
        double sum = 0;
        for (double& w : weight) sum += w = std::exp(w - top);
        for (std::size_t p = 0; p < slots.size(); ++p) {
            for (int d = 0; d < shape.head_dim; ++d) {
                out[static_cast<std::size_t>(h * shape.head_dim + d)] +=
                    weight[p] / sum * cache.values.at(slots[p], kv + d);
            }
        }
    }
    return out;
}

TEST(Attention, MatchesDoublePrecision) {
    const AttentionShape shapes[] = {
        {9, 3, 64, 0.125f}, {4, 4, 16, 0.25f}, {5, 1, 80, 0.1f}, {2, 1, 20, 0.2f}, {8, 2, 128, 0.09f}};
    for (const Isa isa : isas()) {
        for (const AttentionShape& shape : shapes) {
            for (const int threads : {1, 2}) {
                auto exec = make_cpu_exec(threads, isa);
                for (const int positions : {1, 2, 15, 16, 17, 127, 128, 129, 700}) {
                    const Cache cache(shape, positions, 1);
                    Table q = queries_of(shape, 1, 3);
                    for (int i = 0; i < shape.head_dim; ++i) q.row(0)[i] *= 30.0f;  // a head of one spike
                    Table out(1, q.cols);
                    const AttentionQuery query{q.row(0),  out.row(0), cache.keys.row(0), cache.values.row(0),
                                               positions, {}};
                    attention(*exec, shape, {&query, 1});
                    std::vector<int> slots(static_cast<std::size_t>(positions));
                    for (int p = 0; p < positions; ++p) slots[static_cast<std::size_t>(p)] = p;
                    const std::vector<double> expected = reference(shape, q.row(0), cache, slots);
                    for (int i = 0; i < q.cols; ++i) {
                        // Scores reach 100, so exp of their f32 rounding error is off by up to 1e-5.
                        ASSERT_NEAR(out.at(0, i), expected[static_cast<std::size_t>(i)], 6e-5)
                            << name_of(isa) << " dim " << shape.head_dim << " positions " << positions;
                    }
                }
            }
        }
    }
}

/// A random tree behind a prefix. Node i lies in slot prefix + i; its chain is the prefix and its ancestors.
struct Tree {
    Tree(int prefix_in, int nodes, std::uint64_t seed) : prefix(prefix_in) {
        Rng rng(seed);
        for (int i = 0; i < nodes; ++i) {
            const int parent = i == 0 ? -1 : static_cast<int>(rng.below(static_cast<std::uint32_t>(i)));
            std::vector<int> path = parent < 0 ? std::vector<int>{} : paths[static_cast<std::size_t>(parent)];
            path.push_back(prefix + i);
            paths.push_back(std::move(path));
        }
    }
    int prefix;
    std::vector<std::vector<int>> paths;
};

TEST(Attention, TreeSlotsGiveTheBitsOfAChain) {
    const AttentionShape shape{9, 3, 64, 0.125f};
    for (const Isa isa : isas()) {
        for (const int prefix : {0, 1, 15, 126, 500}) {
            const Tree tree(prefix, 24, static_cast<std::uint64_t>(prefix));
            const Cache cache(shape, prefix + 24, 5);
            const Table q = queries_of(shape, 24, 7);
            Table together(24, q.cols);
            std::vector<AttentionQuery> batch;
            for (int i = 0; i < 24; ++i) {
                batch.push_back({q.row(i), together.row(i), cache.keys.row(0), cache.values.row(0), prefix,
                                 tree.paths[static_cast<std::size_t>(i)]});
            }
            auto exec = make_cpu_exec(2, isa);
            attention(*exec, shape, batch);
            for (int i = 0; i < 24; ++i) {
                // The same chain, committed: its keys moved to consecutive slots of another cache.
                Cache chain = cache;
                const std::vector<int>& path = tree.paths[static_cast<std::size_t>(i)];
                for (std::size_t p = 0; p < path.size(); ++p) {
                    const int slot = prefix + static_cast<int>(p);
                    std::copy_n(cache.keys.row(path[p]), cache.keys.cols, chain.keys.row(slot));
                    std::copy_n(cache.values.row(path[p]), cache.values.cols, chain.values.row(slot));
                }
                Table alone(1, q.cols);
                const AttentionQuery query{q.row(i),
                                           alone.row(0),
                                           chain.keys.row(0),
                                           chain.values.row(0),
                                           prefix + static_cast<int>(path.size()),
                                           {}};
                attention(*exec, shape, {&query, 1});
                ASSERT_TRUE(same_bits(alone.row(0), together.row(i), q.cols))
                    << name_of(isa) << " prefix " << prefix << " node " << i;
            }
        }
    }
}

TEST(Attention, NeitherThreadsNorCompanyNorOrderChangeABit) {
    const AttentionShape shape{9, 3, 64, 0.125f};
    constexpr int count = 70;
    for (const Isa isa : isas()) {
        // Queries of two sequences, at positions from 1 to 1100.
        const Cache first(shape, 1100, 1);
        const Cache second(shape, 1100, 2);
        const Table q = queries_of(shape, count, 3);
        const auto query = [&](int i, float* out) {
            const Cache& cache = i % 3 == 0 ? second : first;
            return AttentionQuery{q.row(i),         out, cache.keys.row(0), cache.values.row(0),
                                  1 + i * i % 1100, {}};
        };
        Table expected(count, q.cols);
        auto single = make_cpu_exec(1, isa);
        for (int i = 0; i < count; ++i) {
            const AttentionQuery one = query(i, expected.row(i));
            attention(*single, shape, {&one, 1});
        }
        for (const int threads : {1, 2, 3, 4}) {
            auto exec = make_cpu_exec(threads, isa);
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

TEST(Attention, UnusedSlotsMayHoldAnything) {
    const AttentionShape shape{2, 1, 16, 0.25f};
    auto exec = make_cpu_exec(1);
    Cache cache(shape, 8, 1);
    const Table q = queries_of(shape, 1, 2);
    const std::vector<int> tail = {6};
    Table clean(1, q.cols);
    Table dirty(1, q.cols);
    AttentionQuery query{q.row(0), clean.row(0), cache.keys.row(0), cache.values.row(0), 4, tail};
    attention(*exec, shape, {&query, 1});
    for (const int slot : {4, 5, 7}) {
        std::fill_n(cache.keys.row(slot), 16, std::nanf(""));
        std::fill_n(cache.values.row(slot), 16, std::nanf(""));
    }
    query.out = dirty.row(0);
    attention(*exec, shape, {&query, 1});
    EXPECT_TRUE(same_bits(clean.row(0), dirty.row(0), q.cols));
}

}  // namespace
}  // namespace draftscope::kernels
