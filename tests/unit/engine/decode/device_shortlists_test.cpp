#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/numel.h"
#include "engine/heads/shortlist_ops.h"
#include "kernels/device_array.h"
#include "kernels/host_rows.h"
#include "tests/support/device_rig.h"

/// Compares ShortlistOps with products of whole matrices on the device. Cases include a router
/// that ranks only some tokens and an exact head with rows for only some tokens.
namespace draftscope::testing {
namespace {

using kernels::Matrix;

class DeviceShortlistsTest : public ::testing::TestWithParam<std::string> {
  protected:
    void SetUp() override {
        if (!on_.why_not.empty()) GTEST_SKIP() << on_.why_not;
    }
    std::vector<float> values(std::size_t count, std::uint64_t seed) const {
        Rng rng(seed);
        std::vector<float> out(count);
        for (float& value : out) value = static_cast<float>(rng.normal());
        return out;
    }
    Matrix matrix(int n, int columns, std::uint64_t seed) {
        const std::vector<float> all = values(numel(n, columns), seed);
        return Matrix::pack(*on_.exec, kernels::Precision::bf16, n, columns, [&](int row, float* out) {
            std::copy_n(all.begin() + std::ptrdiff_t{row} * columns, columns, out);
        });
    }
    std::vector<float> product(const Matrix& weights, const std::vector<float>& x) {
        std::vector<float> y(static_cast<std::size_t>(rows * weights.n()));
        kernels::matmul(on_.exec->pool(), weights, {x.data(), rows, weights.k()},
                        {y.data(), rows, weights.n()});
        return y;
    }
    static std::vector<int> best(const float* row, int count, int kept) {
        std::vector<int> order(static_cast<std::size_t>(count));
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return row[a] > row[b]; });
        order.resize(kept);
        return order;
    }

    static constexpr int rows = 4, d = 70, rank = 12, vocab = 500, size = 60, k = 7;
    TwinExec on_{GetParam()};
};

TEST_P(DeviceShortlistsTest, AreThoseOfWholeProducts) {
    for (const bool some_ranked : {false, true})
        for (const bool some_held : {false, true})
            for (const bool per_row : {false, true}) {
                SCOPED_TRACE(fmt::format("{} {} {}", some_ranked, some_held, per_row));
                std::vector<std::int32_t> ranked, held, row_of;
                for (int t = 0; t < vocab; ++t) {
                    if (t % 3 != 1) ranked.push_back(t);
                    if (t % 3 != 1 || t % 5 == 0) held.push_back(t);
                }
                if (!some_ranked && !some_held) {
                    ranked.clear();
                } else if (!some_ranked) {
                    ranked = held;  // a router over the tokens of the head
                }
                if (some_held) {
                    row_of.assign(vocab, 0);
                    for (std::size_t i = 0; i < held.size(); ++i)
                        row_of[held[i]] = static_cast<std::int32_t>(i);
                }
                const int columns = ranked.empty() ? vocab : static_cast<int>(ranked.size());
                const Matrix down = matrix(rank, d, 1), up = matrix(columns, rank, 2),
                             head = matrix(some_held ? static_cast<int>(held.size()) : vocab, d, 3);
                const auto store = kernels::RowMajorMatrix::make(on_.exec->pool(), head);
                const std::vector<float> x = values(rows * d, 4);
                ASSERT_TRUE(kernels::can_route(up.n(), size));

                ShortlistOps shortlists;
                shortlists.set_tokens({ranked, row_of, vocab});
                std::vector<std::int32_t> ids(rows * k), chosen(rows * size), together(rows * size + 1);
                std::vector<float> logits(rows * k), sums(rows);
                {
                    kernels::Backend& backend = *on_.exec;
                    const std::lock_guard lock(backend.submit_mutex());
                    const int stride = down.device_matrix().stride;
                    kernels::DeviceArray<float> d_x, d_logits, d_sums;
                    kernels::DeviceArray<kernels::half_t> half;
                    kernels::DeviceArray<std::int32_t> d_ids, d_union;
                    ASSERT_TRUE(d_x.upload(backend, x) &&
                                half.resize_at_least(backend, numel(rows, stride)) &&
                                d_logits.resize_at_least(backend, logits.size()) &&
                                d_sums.resize_at_least(backend, sums.size()) &&
                                d_ids.resize_at_least(backend, ids.size()) &&
                                d_union.resize_at_least(backend, together.size()));
                    backend.cast({d_x.data(), d, rows, d, half.data(), stride, stride});
                    ASSERT_TRUE(shortlists.reserve(backend, down, up, rows, size));
                    shortlists.enqueue_router(&down, up, half.data(), rows, size);
                    shortlists.enqueue_exact(store, per_row, d_union.data(), d_union.data() + 1);
                    shortlists.enqueue_best(k, d_ids.data(), d_logits.data(), d_sums.data());
                    backend.download(chosen.data(), shortlists.shortlists(),
                                     chosen.size() * sizeof(std::int32_t));
                    d_union.download(backend, together);
                    d_ids.download(backend, ids);
                    d_logits.download(backend, logits);
                    d_sums.download(backend, sums);
                    ASSERT_TRUE(backend.synchronize().ok());
                }

                const std::vector<float> scores = product(up, product(down, x)), exact = product(head, x);
                std::vector<std::int32_t> all;
                for (int r = 0; r < rows; ++r) {
                    std::vector<int> list = best(scores.data() + r * columns, columns, size);
                    for (int& one : list)
                        if (!ranked.empty()) one = ranked[one];
                    std::sort(list.begin(), list.end());
                    all.insert(all.end(), list.begin(), list.end());
                    EXPECT_TRUE(std::equal(list.begin(), list.end(), chosen.begin() + r * size));
                    std::vector<float> own;
                    double sum = 0;
                    for (const int token : list) {
                        const int row = row_of.empty() ? token : row_of[token];
                        own.push_back(exact[r * head.n() + row]);
                        sum += std::exp(static_cast<double>(own.back()));
                    }
                    const std::vector<int> order = best(own.data(), size, k);
                    for (int i = 0; i < k; ++i) {
                        const auto at = static_cast<std::size_t>(order[i]);
                        EXPECT_EQ(ids[r * k + i], list[at]);
                        EXPECT_EQ(logits[r * k + i], own[at]);
                    }
                    EXPECT_NEAR(sums[r], std::log(sum), 1e-4);
                }
                std::sort(all.begin(), all.end());
                all.erase(std::unique(all.begin(), all.end()), all.end());
                if (per_row) continue;
                const auto listed = together.begin() + 1;
                EXPECT_EQ(std::vector<std::int32_t>(listed, listed + together[0]), all);
            }
}

INSTANTIATE_TEST_SUITE_P(Devices, DeviceShortlistsTest, engine_device_kinds(), kind_of);

}  // namespace
}  // namespace draftscope::testing
