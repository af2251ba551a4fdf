#include "kernels/attention.h"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cstring>

#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/fp_mode.h"
#include "kernels/cpu/layout.h"

namespace draftscope::kernels {
namespace {

/// Queries that go through one chunk of keys together, while it is in the cache.
constexpr int tile_queries = 8;
/// Multiply-adds below which waking the pool costs more than it saves.
constexpr std::int64_t worth_splitting_attention = 1 << 16;

int positions_of(const AttentionQuery& query) {
    return query.prefix + static_cast<int>(query.tail.size());
}

int chunks_of(const AttentionQuery& query) {
    return blocks_of(positions_of(query), attention_chunk);
}

/// One attention call: the sums of every (query, head) go chunk by chunk over logical positions into partials
/// (output, maximum, sum), which are then joined in ascending order. Which thread makes a partial does not
/// matter, so a long context of few queries is cut between threads too.
class Call {
  public:
    Call(Exec& exec, const AttentionShape& shape, std::span<const AttentionQuery> queries)
        : exec_(exec),
          kernels_(row_kernels(exec)),
          shape_(shape),
          queries_(queries),
          group_(shape.heads / shape.kv_heads),
          partial_(round_up(shape.head_dim + 2, lanes)) {
        for (const AttentionQuery& query : queries) {
            assert(positions_of(query) > 0);
            most_chunks_ = std::max(most_chunks_, chunks_of(query));
            positions_ += positions_of(query);
        }
    }

    void run() {
        const std::int64_t operations =
            positions_ * shape_.heads * static_cast<std::int64_t>(shape_.head_dim) * 2;
        const int threads = operations < worth_splitting_attention ? 1 : exec_.threads();
        const int tiles = blocks_of(static_cast<int>(queries_.size()), tile_queries);
        if (threads == 1) {
            const FlushDenormals mode;
            for (int item = 0; item < tiles * shape_.kv_heads; ++item) whole_item(0, item);
        } else if (tiles * shape_.kv_heads >= 4 * threads) {
            exec_.parallel(threads, [&](int part) {
                for (int item = part; item < tiles * shape_.kv_heads; item += threads) whole_item(part, item);
            });
        } else {
            split_by_chunk(threads);
        }
    }

  private:
    std::size_t partial_floats(int chunks) const {
        return static_cast<std::size_t>(chunks) * static_cast<std::size_t>(group_ * partial_);
    }
    /// Softmax weights of one tile of queries and one chunk.
    std::size_t weight_floats() const {
        return static_cast<std::size_t>(tile_queries * group_) * attention_chunk;
    }
    /// Positions of all queries in one chunk.
    std::int64_t held_by(int chunk) const {
        std::int64_t held = 0;
        for (const AttentionQuery& query : queries_)
            held += std::clamp(positions_of(query) - chunk * attention_chunk, 0, attention_chunk);
        return held;
    }
    int tile_end(int first) const {
        return std::min(first + tile_queries, static_cast<int>(queries_.size()));
    }

    /// A tile of queries against all their keys of one key/value head.
    void whole_item(int thread, int item) {
        const int kv_head = item % shape_.kv_heads;
        const int first = item / shape_.kv_heads * tile_queries;
        const std::size_t per_query = partial_floats(most_chunks_);
        const std::size_t floats = weight_floats() + per_query * tile_queries;
        auto* weights = reinterpret_cast<float*>(exec_.scratch(thread, floats * sizeof(float)));
        float* partials = weights + weight_floats();
        for (int chunk = 0; chunk < most_chunks_; ++chunk) {
            attend(first, kv_head, chunk, weights, partials, per_query);
        }
        for (int q = first; q < tile_end(first); ++q) {
            join(queries_[static_cast<std::size_t>(q)], kv_head,
                 partials + static_cast<std::size_t>(q - first) * per_query);
        }
    }

    /// Partials of every (key/value head, query), the chunks split between the threads. Whoever makes the
    /// last ones of a head joins them.
    void split_by_chunk(int threads) {
        const int count = static_cast<int>(queries_.size());
        const std::size_t per_query = partial_floats(most_chunks_);
        const std::size_t per_head = per_query * static_cast<std::size_t>(count);
        const auto heads = static_cast<std::size_t>(shape_.kv_heads);
        std::byte* scratch =
            exec_.shared_scratch(per_head * heads * sizeof(float) + heads * sizeof(std::int32_t));
        auto* partials = reinterpret_cast<float*>(scratch);
        auto* chunks_left = reinterpret_cast<std::int32_t*>(partials + per_head * heads);
        std::fill_n(chunks_left, heads, most_chunks_);
        exec_.parallel(threads, [&](int part) {
            auto* weights = reinterpret_cast<float*>(exec_.scratch(part, weight_floats() * sizeof(float)));
            // Whole stretches of positions a thread: all heads of a slot lie side by side in memory. Shares
            // are even in positions, not in chunks, of which the last may hold a single one.
            std::int64_t before = 0;
            for (int chunk = 0; chunk < most_chunks_; ++chunk) {
                const std::int64_t held = held_by(chunk);
                for (int kv_head = 0; kv_head < shape_.kv_heads; ++kv_head, before += held) {
                    if ((2 * before + held) * threads / (2 * positions_ * shape_.kv_heads) != part) continue;
                    float* head = partials + static_cast<std::size_t>(kv_head) * per_head;
                    for (int first = 0; first < count; first += tile_queries) {
                        attend(first, kv_head, chunk, weights,
                               head + static_cast<std::size_t>(first) * per_query, per_query);
                    }
                    if (std::atomic_ref(chunks_left[kv_head]).fetch_sub(1, std::memory_order_acq_rel) > 1)
                        continue;
                    for (int q = 0; q < count; ++q) {
                        join(queries_[static_cast<std::size_t>(q)], kv_head,
                             head + static_cast<std::size_t>(q) * per_query);
                    }
                }
            }
        });
    }

    /// One tile of queries, one chunk: first all scores, while the keys are in the cache, then all values.
    void attend(int first, int kv_head, int chunk, float* weights, float* partials,
                std::size_t per_query) const {
        std::int32_t slots[tile_queries][attention_chunk];
        AttentionChunk work[tile_queries];
        int count = 0;
        for (int q = first; q < tile_end(first); ++q) {
            const AttentionQuery& query = queries_[static_cast<std::size_t>(q)];
            const int positions = std::min(attention_chunk, positions_of(query) - chunk * attention_chunk);
            if (positions <= 0) continue;
            list_slots(query, chunk * attention_chunk, positions, slots[count]);
            AttentionChunk& one = work[count];
            one.q = query.q + static_cast<std::ptrdiff_t>(kv_head) * group_ * shape_.head_dim;
            one.keys = of_head(query.keys, kv_head);
            one.values = of_head(query.values, kv_head);
            one.halves = shape_.kv == KvType::f16;
            one.fetch = count == 0;
            one.slot_stride = static_cast<std::int64_t>(shape_.kv_heads) * shape_.head_dim;
            one.slots = slots[count];
            one.count = positions;
            one.rows = group_;
            one.head_dim = shape_.head_dim;
            one.scale = shape_.scale;
            one.weights = weights + static_cast<std::ptrdiff_t>(count) * group_ * attention_chunk;
            one.out = partials + static_cast<std::size_t>(q - first) * per_query + partial_floats(chunk);
            one.partial_stride = partial_;
            ++count;
        }
        for (int i = 0; i < count; ++i) kernels_.score_chunk(work[i]);
        for (int i = 0; i < count; ++i) kernels_.mix_chunk(work[i]);
    }

    /// Slots of logical positions first .. first + count - 1, padded to whole vectors with the last one.
    static void list_slots(const AttentionQuery& query, int first, int count, std::int32_t* slots) {
        const int in_prefix = std::clamp(query.prefix - first, 0, count);
        for (int i = 0; i < in_prefix; ++i) slots[i] = first + i;
        for (int i = in_prefix; i < count; ++i) {
            slots[i] = query.tail[static_cast<std::size_t>(first + i - query.prefix)];
        }
        for (int i = count; i < round_up(count, lanes); ++i) slots[i] = slots[count - 1];
    }

    const void* of_head(const void* rows, int kv_head) const {
        const std::size_t values =
            static_cast<std::size_t>(kv_head) * static_cast<std::size_t>(shape_.head_dim);
        return static_cast<const std::byte*>(rows) + values * bytes_of(shape_.kv);
    }

    void join(const AttentionQuery& query, int kv_head, const float* partials) const {
        for (int g = 0; g < group_; ++g) {
            float* out = query.out + static_cast<std::ptrdiff_t>(kv_head * group_ + g) * shape_.head_dim;
            kernels_.join_chunks(partials + g * partial_, chunks_of(query),
                                 static_cast<std::int64_t>(group_) * partial_, shape_.head_dim, out);
        }
    }

    Exec& exec_;
    const RowKernels& kernels_;
    const AttentionShape& shape_;
    std::span<const AttentionQuery> queries_;
    int group_;    ///< query heads that share one key/value head
    int partial_;  ///< floats of one head's partial
    int most_chunks_ = 0;
    std::int64_t positions_ = 0;
};

}  // namespace

void attention(Exec& exec, const AttentionShape& shape, std::span<const AttentionQuery> queries) {
    assert(shape.kv_heads > 0 && shape.heads % shape.kv_heads == 0);
    if (!queries.empty()) Call(exec, shape, queries).run();
}

void store_kv(const Exec& exec, KvType type, const float* from, int n, void* to) {
    if (type == KvType::f16) return row_kernels(exec).to_f16(from, n, static_cast<std::uint16_t*>(to));
    std::memcpy(to, from, static_cast<std::size_t>(n) * sizeof(float));
}

}  // namespace draftscope::kernels
