#include "kernels/cpu/set_ops.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <limits>
#include <span>

#include "kernels/cpu/matmul/layout.h"
#include "kernels/cpu/threads/split.h"
#include "kernels/cpu/vector/dispatch.h"

namespace draftscope::kernels {
namespace {

/// Makes room for `count` marks, in whole words.
void reserve_marks(std::vector<std::uint8_t>& marks, int count) {
    if (const std::size_t size = round_up(count, 32); marks.size() < size) marks.resize(size);
}

/// Marked numbers among some that begin at a multiple of 32.
struct Marked {
    std::int32_t first;
    std::span<const std::int32_t> indices;  ///< numbers less `first`, ascending
    std::span<const std::uint32_t> words;   ///< a bit for each number
};

/// Calls visit(Marked) for stretches of the numbers below `count`, ascending, and clears the marks.
template <typename Visit>
void take_marks(const ThreadPool& pool, std::vector<std::uint8_t>& marks, int count, Visit visit) {
    constexpr std::size_t chunk = 1024;
    std::int32_t indices[chunk + 16];
    std::uint32_t words[chunk / 32];
    const RowKernels& kernels = row_kernels(pool);
    const std::size_t end = round_up(count, 32);
    for (std::size_t first = 0; first < end; first += chunk) {
        const std::size_t n = std::min(chunk, end - first);
        const std::size_t found =
            kernels.take_marked(marks.data() + first, static_cast<int>(n), indices, words);
        visit(Marked{static_cast<std::int32_t>(first), {indices, found}, {words, n / 32}});
    }
    std::fill_n(marks.begin(), end, std::uint8_t{0});
}

}  // namespace

/// A byte per token: writes to a shared word would depend on each other.
void SetOps::list_unique_tokens(const ThreadPool& pool, const UniqueTokensOp& op) {
    reserve_marks(marks_, op.vocab);
    // Locals: a byte that is written could be part of anything else.
    std::uint8_t* const marks = marks_.data();
    const std::int32_t *const ids = op.ids, *const end = ids + op.count;
    for (const std::int32_t* id = ids; id != end; ++id)
        if (*id >= 0) marks[*id] = 1;
    std::int32_t size = 0;
    take_marks(pool, marks_, op.vocab, [&](const Marked& marked) {
        std::int32_t* const tokens = op.tokens + size;
        for (std::size_t i = 0; i < marked.indices.size(); ++i) tokens[i] = marked.first + marked.indices[i];
        if (op.index != nullptr) {
            std::uint64_t before = size, *entry = op.index + marked.first / 32;
            for (const std::uint32_t word : marked.words) {
                *entry++ = word | before << 32;
                before += std::popcount(word);
            }
            size = static_cast<std::int32_t>(before);
        } else {
            for (std::size_t i = 0; i < marked.indices.size(); ++i) op.columns[tokens[i]] = size++;
        }
    });
    *op.size = size;
}

void SetOps::clusters(const ThreadPool& pool, const ClustersOp& op) {
    reserve_marks(marks_, op.clusters);
    first_columns_.resize(op.clusters);
    const std::int64_t all = std::int64_t{op.rows} * op.count;
    for (std::int64_t i = 0; i < all; ++i) marks_[op.chosen[i]] = 1;
    marks_[op.clusters - 1] = 1;
    std::int32_t columns = 0;
    take_marks(pool, marks_, op.clusters, [&](const Marked& marked) {
        for (const std::int32_t index : marked.indices) {
            const std::int32_t cluster = marked.first + index;
            first_columns_[cluster] = columns;
            const std::int32_t first = op.first[cluster], tokens = op.sizes[cluster];
            const int rows = padded_cluster_rows(tokens);
            for (int i = 0; i < rows; ++i) op.columns[columns + i] = first + i;
            for (int i = 0; op.token_columns != nullptr && i < tokens; ++i)
                op.token_columns[op.row_tokens[first + i]] = columns + i;
            columns += rows;
        }
    });
    *op.column_count = columns;
    for (int m = 0; m < op.rows; ++m) {
        const std::int32_t* chosen = op.chosen + std::ptrdiff_t{m} * op.count;
        std::int32_t* const ends = op.run_ends + std::ptrdiff_t{m} * (op.count + 1);
        std::int32_t* const shifts = op.run_shifts + std::ptrdiff_t{m} * (op.count + 1);
        std::int32_t num_candidates = 0;
        for (int i = 0; i <= op.count; ++i) {
            const std::int32_t cluster = i < op.count ? chosen[i] : op.clusters - 1;
            shifts[i] = first_columns_[cluster] - num_candidates;
            ends[i] = num_candidates += op.sizes[cluster];
        }
    }
}

void SetOps::cluster_tokens(const ClusterTokensOp& op) {
    reserve_marks(marks_, op.clusters);
    for (int set = 0; set < op.sets; ++set) {
        const std::int32_t* const chosen = op.chosen + std::ptrdiff_t{set} * op.count;
        for (int i = 0; i < op.count; ++i) marks_[chosen[i]] = 1;
        marks_[op.clusters - 1] = 1;
        std::int32_t* const tokens = op.tokens + set * op.stride;
        std::int32_t size = 0;
        for (int token = 0; token < op.vocab; ++token) {
            const std::int32_t cluster = op.cluster_of[token];
            if (cluster >= 0 && marks_[cluster] != 0) tokens[size++] = token;
        }
        op.size[set] = size;
        std::fill_n(marks_.begin(), op.clusters, std::uint8_t{0});
    }
}

void SetOps::remap_ids(const RemapIdsOp& op) {
    const int count = op.d_count == nullptr ? op.count : *op.d_count;
    for (int i = 0; i < count; ++i) op.out[i] = op.ids[i] < 0 ? op.ids[i] : op.table[op.ids[i]];
}

void SetOps::gather_columns(const ThreadPool& pool, const GatherColumnsOp& op) {
    for (int m = 0; m < op.rows; ++m) {
        const float* const logits = op.logits + m * op.stride;
        const std::int32_t* const tokens = op.tokens + m * op.token_stride;
        float* const out = op.out + m * op.out_stride;
        const int count = op.sizes == nullptr ? op.max_count : op.sizes[m];
        if (op.index != nullptr) {
            row_kernels(pool).gather_logits(logits, op.index, tokens, count, out);
        } else {
            for (int i = 0; i < count; ++i) out[i] = logits[op.columns[tokens[i]]];
        }
    }
}

void SetOps::list_reachable_tokens(const ReachableTokensOp& op) {
    reserve_marks(marks_, op.vocab);
    const int count = *op.size;
    for (int i = 0; i < count; ++i) marks_[op.tokens[i]] = 1;
    std::int32_t size = 0;
    for (std::int32_t token = 0; token < op.vocab; ++token) {
        const std::int32_t *source = op.sources + op.first[token], *end = op.sources + op.first[token + 1];
        while (source != end && marks_[*source] == 0) ++source;
        if (source != end) op.out[size++] = token;
    }
    *op.out_size = size;
    for (int i = 0; i < count; ++i) marks_[op.tokens[i]] = 0;
}

void redistribute(ThreadPool& pool, const RedistributeOp& op) {
    assert(op.target_first != nullptr);
    constexpr std::int64_t operations_per_token = 16;
    split_range(pool, op.rows, operations_per_token * op.rows * op.vocab, [&](int, int begin, int end) {
        for (int m = begin; m < end; ++m) {
            const std::size_t support = op.sizes == nullptr ? op.support : op.sizes[m];
            const std::span logits(op.logits + m * op.stride, support);
            const std::int32_t* tokens = op.tokens == nullptr ? nullptr : op.tokens + m * op.token_stride;
            const std::span mass(op.scratch + std::ptrdiff_t{m} * op.vocab, op.vocab);
            std::ranges::fill(mass, 0.0);
            float best = -std::numeric_limits<float>::infinity();
            for (const float logit : logits) best = logit > best ? logit : best;
            const auto weight = [&](float logit) {  // 0 for NaN
                return logit <= best ? std::exp(static_cast<double>((logit - best) / op.temperature)) : 0.0;
            };
            double sum = 0;
            for (const float logit : logits) sum += weight(logit);
            for (std::size_t i = 0; i < support && std::isfinite(best); ++i) {
                const double q = weight(logits[i]) / sum;
                const std::int32_t token = tokens == nullptr ? static_cast<std::int32_t>(i) : tokens[i];
                for (std::int32_t at = op.target_first[token]; at < op.target_first[token + 1]; ++at)
                    mass[op.targets[at]] += q * static_cast<double>(op.target_weights[at]);
            }
            std::ranges::transform(mass, op.out + m * op.out_stride, [&](double value) {
                return value > 0 ? op.temperature * static_cast<float>(std::log(value))
                                 : -std::numeric_limits<float>::infinity();
            });
        }
    });
}

}  // namespace draftscope::kernels
