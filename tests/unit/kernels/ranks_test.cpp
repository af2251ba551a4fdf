#include <algorithm>
#include <limits>
#include <vector>

#include "kernels/cpu/row_ops.h"
#include "kernels_test_util.h"

namespace draftscope::kernels {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

int rank_by_counting(const Table& x, int row, int column) {
    const float value = x.at(row, column);
    int before = 0;
    for (int i = 0; i < x.cols; ++i) before += x.at(row, i) > value || (x.at(row, i) == value && i < column);
    return before;
}

void check_ranks(ThreadPool& exec, const Table& x, std::uint64_t seed) {
    Rng rng(seed);
    std::vector<std::int32_t> rows, columns;
    for (int row = 0; row < x.rows; ++row) {
        const auto wanted = rng.below(6);
        for (std::uint64_t i = 0; i < wanted; ++i) {
            rows.push_back(row);
            columns.push_back(static_cast<std::int32_t>(rng.below(static_cast<std::uint64_t>(x.cols))));
        }
        rows.insert(rows.end(), {row, row});  // counting errors are likely at the ends of a row
        columns.insert(columns.end(), {0, x.cols - 1});
    }
    std::vector<std::int32_t> ranks(rows.size(), -1);
    token_ranks(exec, x.view(), rows, columns, ranks);
    for (std::size_t i = 0; i < rows.size(); ++i)
        ASSERT_EQ(ranks[i], rank_by_counting(x, rows[i], columns[i]))
            << name_of(exec.isa()) << " threads " << exec.threads() << " cols " << x.cols << " row "
            << rows[i] << " column " << columns[i] << " value " << x.at(rows[i], columns[i]);
}

TEST(TokenRanks, MatchAStableSort) {
    for (const Isa isa : isas()) {
        for (const int threads : {1, 3}) {
            auto exec = make_thread_pool(threads, isa);
            for (const int cols : {1, 15, 33, 4095, 4096, 4097, 20'000}) {
                const auto seed = static_cast<std::uint64_t>(cols);
                Rng rng(seed);
                Table plain(4, cols), tied(4, cols);
                for (float& v : plain.data) v = static_cast<float>(rng.normal());
                for (float& v : tied.data) v = static_cast<float>(rng.below(5)) - 2.0f;
                check_ranks(*exec, plain, seed);
                check_ranks(*exec, tied, seed + 1);
            }
        }
    }
}

TEST(TokenRanks, HandleExtremeValues) {
    constexpr float largest = std::numeric_limits<float>::max(), smallest = std::numeric_limits<float>::min();
    constexpr float values[] = {infinity, largest, smallest, 0.0f, -0.0f, -smallest, -largest, -infinity};
    for (const Isa isa : isas()) {
        auto exec = make_thread_pool(1, isa);
        Table x(1, 4100);
        Rng rng(7);
        for (float& v : x.data) v = values[rng.below(std::size(values))];
        std::vector<std::int32_t> rows(static_cast<std::size_t>(x.cols), 0), columns, ranks;
        for (int i = 0; i < x.cols; ++i) columns.push_back(i);
        ranks.resize(columns.size());
        token_ranks(*exec, x.view(), rows, columns, ranks);
        for (int i = 0; i < x.cols; i += 7)
            ASSERT_EQ(ranks[i], rank_by_counting(x, 0, i))
                << name_of(isa) << " column " << i << " value " << x.at(0, i);
    }
}

TEST(TokenRanks, AcceptNoColumns) {
    auto exec = make_thread_pool(2, isas().front());
    const Table x(1, 3);
    token_ranks(*exec, x.view(), {}, {}, {});
}

}  // namespace
}  // namespace draftscope::kernels
