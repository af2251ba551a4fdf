#include "kernels/token_set_union.h"

#include <algorithm>
#include <set>

#include "kernels/topk.h"
#include "kernels_test_util.h"

namespace draftscope::kernels {
namespace {

/// `size` distinct numbers below n in each of `rows` rows, ascending.
std::vector<std::int32_t> some_lists(Rng& rng, int rows, int size, int n) {
    std::vector<std::int32_t> lists;
    for (int r = 0; r < rows; ++r) {
        std::set<std::int32_t> own;
        for (int i = 0; size == n && i < n; ++i) own.insert(own.end(), i);
        while (static_cast<int>(own.size()) < size)
            own.insert(static_cast<std::int32_t>(rng.below(static_cast<std::uint32_t>(n))));
        lists.insert(lists.end(), own.begin(), own.end());
    }
    return lists;
}

TEST(TokenSetUnion, UnionIsSortedAndRebuiltPerCall) {
    for (const Isa isa : isas()) {
        const std::unique_ptr<Exec> exec = make_cpu_exec(1, isa);
        Rng rng(11);
        constexpr int n = 9403;
        TokenSetUnion sets(n);
        for (const int rows : {3, 1, 8, 9, 17, 0, 2}) {
            for (const int size : {1, 30, n}) {
                SCOPED_TRACE(name_of(isa) + " rows " + std::to_string(rows) + " of " + std::to_string(size));
                const std::vector<std::int32_t> lists = some_lists(rng, rows, size, n);
                std::vector<std::int32_t> found;
                sets.unite(*exec, Rows<const std::int32_t>(lists.data(), rows, size), found);
                const std::set<std::int32_t> all(lists.begin(), lists.end());
                ASSERT_EQ(found, std::vector<std::int32_t>(all.begin(), all.end()));
                EXPECT_EQ(sets.members(), static_cast<int>(found.size()));
                for (int r = 0; r < rows; ++r) {
                    const std::set<std::int32_t> own(lists.begin() + r * size,
                                                     lists.begin() + (r + 1) * size);
                    for (std::size_t i = 0; i < found.size() && rows > 1; ++i)
                        ASSERT_EQ((sets.owners(r)[i] & TokenSetUnion::bit(r)) != 0, own.count(found[i]) == 1);
                }
            }
        }
    }
}

TEST(TokenSetUnion, TopKMatchesTheRowsColumnsAlone) {
    for (const Isa isa : isas()) {
        for (const int threads : {1, 2}) {
            const std::unique_ptr<Exec> exec = make_cpu_exec(threads, isa);
            Rng rng(4);
            constexpr int n = 2500;
            TokenSetUnion sets(n);
            for (const int rows : {1, 5, 19}) {
                for (const int size : {1, 7, 2048}) {
                    const std::vector<std::int32_t> lists = some_lists(rng, rows, size, n);
                    std::vector<std::int32_t> all;
                    sets.unite(*exec, Rows<const std::int32_t>(lists.data(), rows, size), all);
                    const Table x = hard_table(rows, static_cast<int>(all.size()), 8);
                    for (const int k : {1, 10, 200}) {
                        const int kept = std::min(k, size);
                        std::vector<std::int32_t> ids(static_cast<std::size_t>(rows * k), -1);
                        std::vector<float> values(ids.size()), sums(static_cast<std::size_t>(rows));
                        topk_per_set(*exec, x.view(), sets, k, Rows<std::int32_t>(ids.data(), rows, k),
                                     Rows<float>(values.data(), rows, k), sums);
                        for (int r = 0; r < rows; ++r) {
                            Table own(1, size);
                            for (int i = 0; i < size; ++i) {
                                const auto at = std::lower_bound(all.begin(), all.end(), lists[r * size + i]);
                                own.row(0)[i] = x.at(r, static_cast<int>(at - all.begin()));
                            }
                            std::vector<std::int32_t> expected(static_cast<std::size_t>(kept));
                            std::vector<float> best(expected.size());
                            float sum = 0;
                            topk(*exec, own.view(), kept, Rows<std::int32_t>(expected.data(), 1, kept),
                                 Rows<float>(best.data(), 1, kept));
                            logsumexp(*exec, own.view(), {&sum, 1});
                            EXPECT_TRUE(same_bits(&sums[r], &sum, 1));
                            EXPECT_TRUE(std::equal(expected.begin(), expected.end(), ids.begin() + r * k));
                            EXPECT_TRUE(same_bits(best.data(), values.data() + r * k, kept));
                        }
                    }
                }
            }
        }
    }
}

}  // namespace
}  // namespace draftscope::kernels
