#pragma once

#include <cstdint>

/// Sets of tokens and of clusters.
namespace draftscope::kernels {

/// Lists the distinct tokens of ids [rows, count] in ascending order, and the position of each in the list.
struct UniqueTokensOp {
    const std::int32_t* ids = nullptr;
    std::int64_t count = 0;  ///< over all rows; negative ids are skipped
    int vocab = 0;
    std::uint32_t* bitmap = nullptr;  ///< [ceil(vocab / 32)], zero before and after the op
    std::int32_t* tokens = nullptr;   ///< [min(count, vocab)]
    std::int32_t* columns = nullptr;  ///< [vocab] positions in `tokens`; other entries stay
    std::int32_t* size = nullptr;     ///< [1]
    /// [ceil(vocab / 32)] or null. The CPU writes it instead of `columns`, because a table of the vocabulary
    /// would move between the cores' caches at each call. For each 32 tokens, the low half of an entry has a
    /// bit per listed token and the high half the number of listed tokens before them.
    std::uint64_t* index = nullptr;
};

/// Toggles numbers of a bit set over [0, range), then lists its members in ascending order.
struct UpdateIndexSetOp {
    const std::int32_t* toggled = nullptr;  ///< [count], each once
    int count = 0;
    int range = 0;
    std::uint32_t* bits = nullptr;  ///< [ceil(range / 32)]
    std::int32_t* list = nullptr;   ///< members; sized for the whole set
};

/// Merges the clusters of all rows into one list of outputs for a matmul. The matrix stores clusters
/// contiguously, each padded to blocks of cluster_block rows. The list is ascending; run_ends and run_shifts
/// say where each row's candidates are in it (see TopKOp). Every row includes the last cluster.
struct ClustersOp {
    const std::int32_t* chosen = nullptr;  ///< [rows, count], ascending, without the last
    int rows = 0, count = 0;
    int clusters = 0;                          ///< including the last; at most max_clusters
    const std::int32_t* first = nullptr;       ///< [clusters] first matrix row of each cluster
    const std::int32_t* sizes = nullptr;       ///< [clusters] number of tokens
    std::int32_t* columns = nullptr;           ///< matrix rows, padding included; sized for all clusters
    std::int32_t* column_count = nullptr;      ///< [1]
    std::int32_t* run_ends = nullptr;          ///< [rows, count + 1]
    std::int32_t* run_shifts = nullptr;        ///< [rows, count + 1]
    const std::int32_t* row_tokens = nullptr;  ///< token of each matrix row; needed for token_columns
    std::int32_t* token_columns = nullptr;     ///< [vocab] columns of listed tokens; null = not requested
};
inline constexpr int cluster_block = 16;
/// Matrix rows of a cluster of `size` tokens, including padding.
constexpr int padded_cluster_rows(int size) {
    return (size + cluster_block - 1) / cluster_block * cluster_block;
}
inline constexpr int max_clusters = 4096;

/// Lists, for each set, the tokens of the selected clusters and of the last one, in ascending order.
struct ClusterTokensOp {
    const std::int32_t* chosen = nullptr;  ///< [sets, count]; repeats are allowed
    int count = 0;
    int clusters = 0;                          ///< including the last; at most max_clusters
    const std::int32_t* cluster_of = nullptr;  ///< [vocab]; -1 = none
    int vocab = 0;
    std::uint32_t* bitmap = nullptr;  ///< [sets, ceil(vocab / 32)], scratch
    std::int32_t* tokens = nullptr;   ///< [sets, stride], sized for all tokens
    std::int32_t* size = nullptr;     ///< [sets]
    int sets = 1;
    std::int64_t stride = 0;
};

/// Maps ids through a table: out[i] = table[ids[i]].
struct RemapIdsOp {
    const std::int32_t* ids = nullptr;      ///< negative ids stay as they are
    int count = 0;                          ///< upper bound of the number of ids
    const std::int32_t* d_count = nullptr;  ///< number of ids, in device memory; null = count
    const std::int32_t* table = nullptr;
    std::int32_t* out = nullptr;  ///< may be ids
};

}  // namespace draftscope::kernels
