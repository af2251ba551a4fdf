#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/gpu/device_pair.h"

/// Cluster ops compared with the reference device and with their definition.
namespace draftscope::testing {
namespace {

class Clusters : public DevicePair {
  protected:
    struct Partition {
        std::vector<std::int32_t> first, sizes;
        int rows = 0;
    };
    /// Sizes from empty clusters to whole blocks; the last cluster has `always` tokens.
    static Partition partition(int clusters, int always, Rng& rng) {
        Partition made;
        for (int c = 0; c < clusters; ++c) {
            const int size = c == clusters - 1   ? always
                             : rng.below(4) == 0 ? 0
                             : rng.below(4) == 0 ? 32
                                                 : static_cast<int>(rng.below(70));
            made.first.push_back(made.rows);
            made.sizes.push_back(size);
            made.rows += (size + 15) / 16 * 16;
        }
        return made;
    }
    /// Ascending, without the last cluster.
    static std::vector<std::int32_t> choose(int rows, int count, int clusters, Rng& rng) {
        std::vector<std::int32_t> chosen;
        for (int r = 0; r < rows; ++r) {
            std::set<std::int32_t> own;
            while (static_cast<int>(own.size()) < count)
                own.insert(static_cast<std::int32_t>(rng.below(static_cast<std::uint64_t>(clusters - 1))));
            chosen.insert(chosen.end(), own.begin(), own.end());
        }
        return chosen;
    }
};

TEST_P(Clusters, ListColumnsAndRuns) {
    struct Case {
        int clusters, rows, count, always;
    };
    // More clusters than lanes of a warp and threads of a block; all clusters except the last of two.
    for (const Case& c : {Case{40, 5, 7, 3}, Case{2, 3, 1, 0}, Case{1500, 9, 40, 17}, Case{4096, 1, 33, 1}}) {
        Rng rng(static_cast<std::uint64_t>(c.clusters));
        const Partition parts = partition(c.clusters, c.always, rng);
        const std::vector<std::int32_t> chosen = choose(c.rows, c.count, c.clusters, rng);
        const auto runs = static_cast<std::size_t>(c.rows * (c.count + 1));
        std::vector<std::int32_t> names(static_cast<std::size_t>(std::max(parts.rows, 1)), -1);
        int tokens_in_all = 0;
        for (std::size_t p = 0; p < parts.sizes.size(); ++p)
            for (int t = 0; t < parts.sizes[p]; ++t) names[parts.first[p] + t] = tokens_in_all++;
        const auto room = static_cast<std::size_t>(std::max(parts.rows, 1));
        const Both<std::int32_t> list(device(), twin(), chosen), first(device(), twin(), parts.first),
            sizes(device(), twin(), parts.sizes), columns(device(), twin(), room, -9),
            count(device(), twin(), 1, -9), ends(device(), twin(), runs, -9),
            shifts(device(), twin(), runs, -9), row_tokens(device(), twin(), names),
            token_columns(device(), twin(), static_cast<std::size_t>(tokens_in_all), -9);
        for (const bool on_twin : {false, true}) {
            kernels::ClustersOp op;
            op.chosen = list.on(on_twin);
            op.rows = c.rows;
            op.count = c.count;
            op.clusters = c.clusters;
            op.first = first.on(on_twin);
            op.sizes = sizes.on(on_twin);
            op.columns = columns.on(on_twin);
            op.column_count = count.on(on_twin);
            op.run_ends = ends.on(on_twin);
            op.run_shifts = shifts.on(on_twin);
            op.row_tokens = row_tokens.on(on_twin);
            op.token_columns = token_columns.on(on_twin);
            (on_twin ? twin() : device()).clusters(op);
        }
        EXPECT_EQ(columns.read(false), columns.read(true));
        EXPECT_EQ(count.read(false), count.read(true));
        EXPECT_EQ(ends.read(false), ends.read(true));
        EXPECT_EQ(shifts.read(false), shifts.read(true));
        EXPECT_EQ(token_columns.read(false), token_columns.read(true));
        // By its run, each candidate of a row maps to its token's row of the matrix.
        const auto at = columns.read(false), end = ends.read(false), shift = shifts.read(false);
        for (int r = 0; r < c.rows; ++r) {
            int place = 0;
            for (int i = 0; i <= c.count; ++i) {
                const auto cluster =
                    static_cast<std::size_t>(i < c.count ? chosen[r * c.count + i] : c.clusters - 1);
                const auto run = static_cast<std::size_t>(r * (c.count + 1) + i);
                for (int t = 0; t < parts.sizes[cluster]; ++t, ++place) {
                    const int row = parts.first[cluster] + t, column = place + shift[run];
                    ASSERT_EQ(at[column], row) << r << " " << i;
                    const auto token = static_cast<std::size_t>(names[row]);
                    ASSERT_EQ(token_columns.read(false)[token], column);
                }
                ASSERT_EQ(end[run], place);
            }
        }
    }
}

TEST_P(Clusters, ListTokens) {
    for (const int vocab : {1, 31, 1024, 2085}) {
        const int clusters = 37, count = 11;
        Rng rng(static_cast<std::uint64_t>(vocab));
        std::vector<std::int32_t> cluster_of;
        for (int t = 0; t < vocab; ++t)
            cluster_of.push_back(static_cast<std::int32_t>(rng.below(clusters + 1)) - 1);
        std::vector<std::int32_t> chosen = choose(1, count - 1, clusters, rng);
        chosen.push_back(chosen.front());  // two rows may choose the same cluster
        const auto room = static_cast<std::size_t>(vocab);
        const Both<std::int32_t> list(device(), twin(), chosen), of(device(), twin(), cluster_of),
            tokens(device(), twin(), room, -9), size(device(), twin(), 1, -9);
        const Both<std::uint32_t> bitmap(device(), twin(), (room + 31) / 32, 0xdeadbeefu);
        for (const bool on_twin : {false, true}) {
            kernels::ClusterTokensOp op;
            op.chosen = list.on(on_twin);
            op.count = count;
            op.clusters = clusters;
            op.cluster_of = of.on(on_twin);
            op.vocab = vocab;
            op.bitmap = bitmap.on(on_twin);
            op.tokens = tokens.on(on_twin);
            op.size = size.on(on_twin);
            (on_twin ? twin() : device()).cluster_tokens(op);
        }
        EXPECT_EQ(tokens.read(false), tokens.read(true)) << vocab;
        EXPECT_EQ(size.read(false), size.read(true)) << vocab;
        std::vector<std::int32_t> expected;
        for (int t = 0; t < vocab; ++t) {
            const std::int32_t cluster = cluster_of[t];
            if (cluster == clusters - 1 || std::count(chosen.begin(), chosen.end(), cluster) > 0)
                expected.push_back(t);
        }
        ASSERT_EQ(size.read(false)[0], static_cast<std::int32_t>(expected.size()));
        expected.resize(room, -9);
        EXPECT_EQ(tokens.read(false), expected);
    }
}

/// Several sets in one call equal one call per set.
TEST_P(Clusters, ListTokensOfEachSet) {
    constexpr int vocab = 2085, clusters = 37, count = 5, sets = 4, stride = vocab + 3;
    Rng rng(4);
    std::vector<std::int32_t> cluster_of;
    for (int t = 0; t < vocab; ++t)
        cluster_of.push_back(static_cast<std::int32_t>(rng.below(clusters + 1)) - 1);
    const std::vector<std::int32_t> chosen = choose(sets, count, clusters, rng);
    const Both<std::int32_t> list(device(), twin(), chosen), of(device(), twin(), cluster_of),
        tokens(device(), twin(), sets * stride, -9), sizes(device(), twin(), sets, -9),
        alone(device(), twin(), stride, -9), size_alone(device(), twin(), 1, -9);
    const Both<std::uint32_t> bitmap(device(), twin(), sets * ((vocab + 31) / 32), 0xdeadbeefu);
    for (const bool on_twin : {false, true}) {
        kernels::Backend& on = on_twin ? twin() : device();
        kernels::ClusterTokensOp op{
            list.on(on_twin),  count, clusters, of.on(on_twin), vocab, bitmap.on(on_twin), tokens.on(on_twin),
            sizes.on(on_twin), sets,  stride};
        on.cluster_tokens(op);
        const auto found = tokens.read(on_twin);
        for (int s = 0; s < sets; ++s) {
            kernels::ClusterTokensOp one = op;
            one.chosen += s * count;
            one.sets = 1;
            one.tokens = alone.on(on_twin);
            one.size = size_alone.on(on_twin);
            on.cluster_tokens(one);
            const int size = size_alone.read(on_twin)[0];
            ASSERT_GT(size, 0);
            EXPECT_EQ(sizes.read(on_twin)[s], size);
            const auto expected = alone.read(on_twin);
            EXPECT_TRUE(std::equal(expected.begin(), expected.begin() + size, found.begin() + s * stride))
                << s;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Devices, Clusters, device_kinds_with_cpu(), param_name);

}  // namespace
}  // namespace draftscope::testing
