#include <gtest/gtest.h>

#include "tests/gpu/device_pair.h"

namespace draftscope::testing {
namespace {

using kernels::half_t;
using kernels::padded_columns;

constexpr float poison = -12345.0f;

/// Ops on sets of token ids and on copies of rows.
class SetOps : public DevicePair {};

TEST_P(SetOps, TopKSet) {
    for (const auto& [columns, k] :
         {std::pair(1, 1), {7, 7}, {1000, 999}, {5000, 64}, {49152, 2048}, {128256, 2048}}) {
        const int rows = 2;
        if (too_large(std::int64_t{columns} * 100)) continue;
        std::vector<float> values = normal(rows * columns, 1);
        for (std::size_t i = 0; i < values.size(); i += 3) values[i] = std::round(values[i] * 2) / 2;  // ties
        const Both<float> x(device(), twin(), values);
        const Both<std::int32_t> ids(device(), twin(), rows * k, -7);
        for (const bool on_twin : {false, true})
            (on_twin ? twin() : device())
                .topk_set({x.on(on_twin), columns, rows, columns, k, ids.on(on_twin)});
        EXPECT_EQ(ids.read(false), ids.read(true)) << columns << " " << k;
    }
}

TEST_P(SetOps, UniqueTokensAndOwnCandidates) {
    const int vocab = 5003, rows = GetParam().starts_with("cuda") ? 7 : 3, own = 198, k = 10;
    const Both<float> scores(device(), twin(), normal(rows * vocab, 1));
    const Both<std::int32_t> ids(device(), twin(), rows * own, -9), tokens(device(), twin(), rows * own, -9),
        columns(device(), twin(), vocab, -9), found(device(), twin(), 1, -9),
        picked(device(), twin(), rows * k, -9);
    const Both<std::uint32_t> bitmap(device(), twin(), (vocab + 31) / 32, 0);
    const Both<float> best(device(), twin(), rows * k, poison), sums(device(), twin(), rows, poison);
    const Both<std::byte> scratch(device(), twin(), kernels::topk_scratch_bytes(rows, own, k), std::byte{1});
    // Logits over the union: token t has half its score, so that ranks agree with scores.
    for (const bool on_twin : {false, true}) {
        kernels::Backend& on = on_twin ? twin() : device();
        on.topk_set({scores.on(on_twin), vocab, rows, vocab, own, ids.on(on_twin)});
        on.list_unique_tokens({ids.on(on_twin), std::int64_t{rows} * own, vocab, bitmap.on(on_twin),
                               tokens.on(on_twin), columns.on(on_twin), found.on(on_twin)});
    }
    EXPECT_EQ(ids.read(false), ids.read(true));
    EXPECT_EQ(found.read(false), found.read(true));
    EXPECT_EQ(tokens.read(false), tokens.read(true));
    EXPECT_EQ(columns.read(false), columns.read(true));
    EXPECT_EQ(bitmap.read(false), std::vector<std::uint32_t>((vocab + 31) / 32, 0));
    const int together = found.read(true)[0];
    const Both<float> logits(device(), twin(), normal(rows * together, 5));
    for (const bool on_twin : {false, true}) {
        kernels::TopKOp op;
        op.logits = logits.on(on_twin);
        op.stride = together;
        op.rows = rows;
        op.support = own;
        op.k = k;
        op.ids = picked.on(on_twin);
        op.values = best.on(on_twin);
        op.logsumexp = sums.on(on_twin);
        op.scratch = scratch.on(on_twin);
        op.candidates = ids.on(on_twin);
        op.candidate_stride = own;
        op.columns = columns.on(on_twin);
        (on_twin ? twin() : device()).topk(op);
    }
    EXPECT_EQ(picked.read(false), picked.read(true));
    expect_close(best.read(false), best.read(true), 0, "best");
    expect_close(sums.read(false), sums.read(true), 1e-6, "logsumexp");
}

/// One block lists few tokens of a small vocabulary; others take several blocks.
TEST_P(SetOps, UnionsOfManyTokensAndOfALargeVocabulary) {
    for (const auto& [count, vocab] : {std::pair(5000, 70), {33'000, 90}, {50, 262'177}}) {
        std::vector<std::int32_t> numbers;
        Rng rng(4);
        for (int i = 0; i < count; ++i) numbers.push_back(static_cast<std::int32_t>(rng.below(vocab)) - 1);
        const Both<std::int32_t> ids(device(), twin(), numbers),
            tokens(device(), twin(), std::min(count, vocab), -9), columns(device(), twin(), vocab, -9),
            size(device(), twin(), 1, -9);
        const Both<std::uint32_t> bitmap(device(), twin(), (vocab + 31) / 32, 0);
        for (const bool on_twin : {false, true})
            (on_twin ? twin() : device())
                .list_unique_tokens({ids.on(on_twin), count, vocab, bitmap.on(on_twin), tokens.on(on_twin),
                                     columns.on(on_twin), size.on(on_twin)});
        EXPECT_EQ(size.read(false), size.read(true));
        EXPECT_EQ(tokens.read(false), tokens.read(true));
        EXPECT_EQ(columns.read(false), columns.read(true));
        EXPECT_EQ(bitmap.read(false), std::vector<std::uint32_t>((vocab + 31) / 32, 0));
    }
}

TEST_P(SetOps, RowsAreCopiedAndCompacted) {
    if (device().is_host()) return;  // other formats
    const int n = 90, k = 130, stride = padded_columns(k), count = 37;
    const Both<half_t> from(device(), twin(), random_halves(n, k, 1)),
        to(device(), twin(), count * stride, half_t{9});
    std::vector<std::int32_t> list;
    Rng rng(2);
    for (int i = 0; i < count; ++i) list.push_back(static_cast<std::int32_t>(rng.below(n)));
    const Both<std::int32_t> rows(device(), twin(), list);
    const Both<float> plain(device(), twin(), normal(n * 70, 3)),
        copied(device(), twin(), count * 80, poison), pieces(device(), twin(), 90 * 360, poison);
    // A path through a tree whose sources are also destinations.
    const int planes = 6, slots = 40, width = 24, first = 11;
    const std::vector<std::int32_t> path = {0, 1, 3, 4, 9, 12};
    const Both<half_t> cache(device(), twin(), random_halves(planes * slots * width / 64, 64, 4));
    const int moved = static_cast<int>(path.size());
    const Both<std::int32_t> d_path(device(), twin(), path), path_size(device(), twin(), {moved});
    for (const bool on_twin : {false, true}) {
        kernels::Backend& on = on_twin ? twin() : device();
        on.gather({{from.on(on_twin), n, k, stride}, rows.on(on_twin), count, to.on(on_twin)});
        on.copy_rows({plain.on(on_twin), 70, rows.on(on_twin), count, 67, copied.on(on_twin), 80});
        // More ops than one launch takes, of several widths, some of them empty.
        std::vector<kernels::CopyRowsOp> many;
        for (int i = 0; i < 90; ++i)
            many.push_back({plain.on(on_twin), 70, i % 2 == 0 ? rows.on(on_twin) : nullptr, i % 5,
                            i % 3 == 0 ? 70 : 9, pieces.on(on_twin) + i * 360, 72});
        on.copy_rows(many);
        on.copy_rows(std::span<const kernels::CopyRowsOp>());
        const kernels::CompactOp compact{{cache.on(on_twin), slots * width},
                                         planes,
                                         width,
                                         first,
                                         moved + 2,
                                         d_path.on(on_twin),
                                         path_size.on(on_twin)};
        on.compact(std::span(&compact, 1));
    }
    EXPECT_EQ(to.read(false), to.read(true));
    EXPECT_EQ(copied.read(false), copied.read(true));
    EXPECT_EQ(pieces.read(false), pieces.read(true));
    EXPECT_EQ(cache.read(false), cache.read(true));
}

/// Toggles numbers of a set and lists it; remaps as many ids as the device's count says.
TEST_P(SetOps, IndexSetsAndRemappedIds) {
    if (device().is_host()) return;  // no index sets
    const int range = 1003;
    const Both<std::uint32_t> bits(device(), twin(), (range + 31) / 32, 0u);
    std::vector<std::int32_t> in;
    Rng rng(12);
    for (int turn = 0; turn < 4; ++turn) {
        std::vector<std::int32_t> toggled;
        for (int i = turn == 2 ? range : 0; i < range; ++i)
            if (rng.below(turn == 0 ? 3 : 9) == 0) toggled.push_back(i);
        std::vector<std::int32_t> expected;
        std::set_symmetric_difference(in.begin(), in.end(), toggled.begin(), toggled.end(),
                                      std::back_inserter(expected));
        in = expected;
        std::vector<std::int32_t> table;
        for (int i = 0; i < range; ++i) table.push_back(5000 - i);
        const auto count = static_cast<std::int32_t>(in.size()) - 2;
        const Both<std::int32_t> changes(device(), twin(), toggled), list(device(), twin(), in.size(), -7),
            names(device(), twin(), table), d_count(device(), twin(), {count}),
            out(device(), twin(), in.size(), -7);
        for (const bool on_twin : {false, true}) {
            kernels::Backend& on = on_twin ? twin() : device();
            on.update_index_set({changes.on(on_twin), static_cast<int>(toggled.size()), range,
                                 bits.on(on_twin), list.on(on_twin)});
            on.remap_ids({list.on(on_twin), static_cast<int>(in.size()), d_count.on(on_twin),
                          names.on(on_twin), out.on(on_twin)});
        }
        EXPECT_EQ(list.read(false), in);
        EXPECT_EQ(list.read(true), in);
        const std::vector<std::int32_t> named = out.read(false);
        EXPECT_EQ(named, out.read(true));
        EXPECT_EQ(named[0], 5000 - in[0]);
        EXPECT_EQ(named.back(), -7);  // past the count
    }
}

INSTANTIATE_TEST_SUITE_P(Devices, SetOps, device_kinds_with_dtypes(), param_name);
#if !defined(DS_GPU_ONLY)
INSTANTIATE_TEST_SUITE_P(Cpu, SetOps, ::testing::Values("cpu"), param_name);
#endif

}  // namespace
}  // namespace draftscope::testing
