#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "tests/support/twin_checks.h"
#include "tests/support/twin_device.h"

/// Reference implementations of the ops in kernels/ops/sets.h.
namespace draftscope::testing {

using namespace kernels;

void TwinDevice::run(const UniqueTokensOp& op) {
    note("unite", op.ids, op.count, op.vocab, op.bitmap, op.tokens, op.columns, op.size);
    const std::int32_t* ids = at(op.ids, size(op.count), "union ids");
    std::uint32_t* bitmap = at(op.bitmap, size((op.vocab + 31) / 32), "bitmap");
    for (std::int64_t i = 0; i < op.count; ++i)
        if (ids[i] >= 0) bitmap[ids[i] / 32] |= std::uint32_t{1} << (ids[i] % 32);
    int found = 0;
    for (int t = 0; t < op.vocab; ++t) {
        if ((bitmap[t / 32] >> (t % 32) & 1u) == 0) continue;
        *row(op.tokens, found, 1, "union tokens") = t;
        *row(op.columns, t, 1, "union columns") = found++;
    }
    std::fill(bitmap, bitmap + (op.vocab + 31) / 32, 0u);
    *at(op.size, 1, "union size") = found;
}

void TwinDevice::run(const UpdateIndexSetOp& op) {
    note("list_set", op.toggled, op.count, op.range, op.bits, op.list);
    std::uint32_t* bits = at(op.bits, size((op.range + 31) / 32), "bits of a set");
    for (int i = 0; i < op.count; ++i) {
        const int number = *row(op.toggled, i, 1, "toggled");
        if (number < 0 || number >= op.range) reject("update_index_set", "number out of range");
        bits[number / 32] ^= std::uint32_t{1} << (number % 32);
    }
    int found = 0;
    for (int number = 0; number < op.range; ++number)
        if ((bits[number / 32] >> (number % 32) & 1u) != 0)
            *row(op.list, found++, 1, "list of a set") = number;
}

void TwinDevice::run(const ClustersOp& op) {
    note("clusters", op.chosen, op.rows, op.count, op.clusters, op.first, op.sizes, op.columns,
         op.column_count, op.run_ends, op.run_shifts, op.row_tokens, op.token_columns);
    if (op.clusters < 1 || op.clusters > max_clusters) reject("clusters", "number of clusters");
    std::set<int> all = {op.clusters - 1};
    for (std::int64_t i = 0; i < std::int64_t{op.rows} * op.count; ++i) {
        const int cluster = *row(op.chosen, i, 1, "chosen clusters");
        if (cluster < 0 || cluster >= op.clusters - 1) reject("clusters", "cluster out of range");
        all.insert(cluster);
    }
    std::map<int, int> places;
    int columns = 0;
    for (const int cluster : all) {
        places[cluster] = columns;
        const int tokens = *row(op.sizes, cluster, 1, "sizes");
        const int rows = (tokens + cluster_block - 1) / cluster_block * cluster_block;
        for (int i = 0; i < rows; ++i, ++columns) {
            const int from = *row(op.first, cluster, 1, "first") + i;
            *row(op.columns, columns, 1, "columns of clusters") = from;
            if (op.token_columns != nullptr && i < tokens)
                *row(op.token_columns, *row(op.row_tokens, from, 1, "row tokens"), 1, "token columns") =
                    columns;
        }
    }
    *at(op.column_count, 1, "column count") = columns;
    for (int m = 0; m < op.rows; ++m) {
        int own = 0;
        for (int i = 0; i <= op.count; ++i) {
            const std::int64_t run = std::int64_t{m} * (op.count + 1) + i;
            const int cluster = i < op.count
                                    ? *row(op.chosen, std::int64_t{m} * op.count + i, 1, "chosen clusters")
                                    : op.clusters - 1;
            *row(op.run_shifts, run, 1, "run shifts") = places[cluster] - own;
            own += *row(op.sizes, cluster, 1, "sizes");
            *row(op.run_ends, run, 1, "run ends") = own;
        }
    }
}

void TwinDevice::run(const ClusterTokensOp& op) {
    note("cluster_tokens", op.chosen, op.count, op.clusters, op.cluster_of, op.vocab, op.bitmap, op.tokens,
         op.size, op.sets, op.stride);
    if (op.clusters < 1 || op.clusters > max_clusters) reject("cluster_tokens", "number of clusters");
    (void)at(op.bitmap, size(op.sets) * size((op.vocab + 31) / 32), "bitmap");
    for (std::int64_t set = 0; set < op.sets; ++set) {
        std::vector<bool> in(size(op.clusters), false);
        in.back() = true;
        for (int i = 0; i < op.count; ++i) {
            const int cluster = *row(op.chosen, set * op.count + i, 1, "chosen clusters");
            if (cluster < 0 || cluster >= op.clusters - 1) reject("cluster_tokens", "cluster out of range");
            in[size(cluster)] = true;
        }
        int found = 0;
        for (int token = 0; token < op.vocab; ++token) {
            const int cluster = *row(op.cluster_of, token, 1, "cluster of a token");
            if (cluster < 0 || !in[size(cluster)]) continue;
            if (op.sets > 1 && found == op.stride) reject("cluster_tokens", "more tokens than stride");
            *row(op.tokens, set * op.stride + found++, 1, "tokens of clusters") = token;
        }
        *row(op.size, set, 1, "tokens of clusters") = found;
    }
}

void TwinDevice::run(const RemapIdsOp& op) {
    note("translate", op.ids, op.count, op.d_count, op.table, op.out);
    const int count = op.d_count == nullptr ? op.count : *at(op.d_count, 1, "d_count");
    if (count > op.count) reject("remap_ids", "more ids than count");
    const std::int32_t* ids = at(op.ids, size(count), "remapped ids");
    std::int32_t* out = at(op.out, size(count), "remap_ids out");
    for (int i = 0; i < count; ++i)
        out[i] = ids[i] < 0 ? ids[i] : *row(op.table, ids[i], 1, "remap_ids table");
}

}  // namespace draftscope::testing
