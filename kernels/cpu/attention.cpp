#include "kernels/cpu/attention.h"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <limits>

#include "base/numel.h"
#include "kernels/cpu/matmul/layout.h"
#include "kernels/cpu/threads/fp_mode.h"
#include "kernels/cpu/vector/dispatch.h"

namespace draftscope::kernels {
namespace {

/// Queries that share one chunk of keys while it is in cache.
constexpr int tile_queries = 8;
/// Multiply-adds below which waking the pool costs more than it saves.
constexpr std::int64_t min_parallel_attention_ops = 1 << 16;

int num_positions(const AttentionQuery& query) {
    return query.prefix + static_cast<int>(query.ancestor_slots.size());
}

int num_chunks(const AttentionQuery& query) {
    return ceil_div(num_positions(query), attention_chunk);
}

/// One attention call. The sums of every (query, head) are computed per chunk of logical positions as
/// partials (output, maximum, sum), which are merged in ascending order. The result does not depend on which
/// thread computes a partial. A long context with few queries is therefore split between threads, too.
class Call {
  public:
    Call(ThreadPool& pool, const AttentionShape& shape, std::span<const AttentionQuery> queries)
        : pool_(pool),
          kernels_(row_kernels(pool)),
          shape_(shape),
          queries_(queries),
          group_(shape.heads / shape.kv_heads),
          partial_(round_up(shape.head_dim + 2, lanes)) {
        for (const AttentionQuery& query : queries) {
            assert(num_positions(query) > 0);
            max_chunks_ = std::max(max_chunks_, num_chunks(query));
            positions_ += num_positions(query);
        }
    }

    void run() {
        const std::int64_t operations =
            positions_ * shape_.heads * static_cast<std::int64_t>(shape_.head_dim) * 2;
        const int threads = operations < min_parallel_attention_ops ? 1 : pool_.threads();
        const int tiles = ceil_div(static_cast<int>(queries_.size()), tile_queries);
        if (threads == 1) {
            const FlushDenormals mode;
            for (int item = 0; item < tiles * shape_.kv_heads; ++item) run_item(0, item);
        } else if (tiles * shape_.kv_heads >= 4 * threads) {
            pool_.parallel(threads, [&](int part) {
                for (int item = part; item < tiles * shape_.kv_heads; item += threads) run_item(part, item);
            });
        } else {
            split_by_chunk(threads);
        }
    }

  private:
    struct Piece;
    struct HeadRows;

    std::size_t partial_floats(int chunks) const { return numel(chunks, group_ * partial_); }
    /// Softmax weights of a tile of queries and a chunk.
    std::size_t weight_floats() const { return numel(tile_queries * group_, attention_chunk); }
    /// Number of positions of all queries in one chunk.
    std::int64_t positions_in(int chunk) const {
        std::int64_t held = 0;
        for (const AttentionQuery& query : queries_)
            held += std::clamp(num_positions(query) - chunk * attention_chunk, 0, attention_chunk);
        return held;
    }
    int tile_end(int first) const {
        return std::min(first + tile_queries, static_cast<int>(queries_.size()));
    }

    /// Computes a tile of queries against all keys of one key/value head.
    void run_item(int thread, int item) {
        const int kv_head = item % shape_.kv_heads;
        const int first = item / shape_.kv_heads * tile_queries;
        const std::size_t per_query = partial_floats(max_chunks_);
        const std::size_t floats = weight_floats() + per_query * tile_queries;
        auto* weights = reinterpret_cast<float*>(pool_.scratch(thread, floats * sizeof(float)));
        float* partials = weights + weight_floats();
        for (int chunk = 0; chunk < max_chunks_; ++chunk) {
            attend(first, kv_head, chunk, weights, partials, per_query);
        }
        for (int q = first; q < tile_end(first); ++q) {
            join(queries_[q], kv_head, partials + numel(q - first, per_query));
        }
    }

    /// Computes partials of every (key/value head, query), with the chunks split between threads. The thread
    /// that finishes a head's last partials merges them.
    void split_by_chunk(int threads) {
        const int count = static_cast<int>(queries_.size());
        const std::size_t per_query = partial_floats(max_chunks_);
        const std::size_t per_head = per_query * count;
        const std::size_t heads = shape_.kv_heads;
        std::byte* scratch =
            pool_.shared_scratch(per_head * heads * sizeof(float) + heads * sizeof(std::int32_t));
        auto* partials = reinterpret_cast<float*>(scratch);
        auto* chunks_left = reinterpret_cast<std::int32_t*>(partials + per_head * heads);
        std::fill_n(chunks_left, heads, max_chunks_);
        pool_.parallel(threads, [&](int part) {
            auto* weights = reinterpret_cast<float*>(pool_.scratch(part, weight_floats() * sizeof(float)));
            // Each thread gets a contiguous range of positions, because all heads of a slot are contiguous in
            // memory. Shares are equal in positions, not in chunks: the last chunk may have a single
            // position.
            std::int64_t before = 0;
            for (int chunk = 0; chunk < max_chunks_; ++chunk) {
                const std::int64_t held = positions_in(chunk);
                for (int kv_head = 0; kv_head < shape_.kv_heads; ++kv_head, before += held) {
                    if ((2 * before + held) * threads / (2 * positions_ * shape_.kv_heads) != part) continue;
                    float* head = partials + numel(kv_head, per_head);
                    for (int first = 0; first < count; first += tile_queries) {
                        attend(first, kv_head, chunk, weights, head + numel(first, per_query), per_query);
                    }
                    if (std::atomic_ref(chunks_left[kv_head]).fetch_sub(1, std::memory_order_acq_rel) > 1)
                        continue;
                    for (int q = 0; q < count; ++q) {
                        join(queries_[q], kv_head, head + numel(q, per_query));
                    }
                }
            }
        });
    }

    /// The part of a query in one chunk.
    struct Piece {
        const AttentionQuery* query;
        int in_prefix;                                 ///< positions whose slots equal their numbers
        std::span<const std::int32_t> ancestor_slots;  ///< slots of the other positions
        float* weights;                                ///< [group_, attention_chunk]
        float* partials;                               ///< [group_, partial_]

        int positions() const { return in_prefix + static_cast<int>(ancestor_slots.size()); }
    };

    /// The heads of some queries as rows, as many as fit at a time.
    struct HeadRows {
        static constexpr int at_once = 24;

        const Call& call;
        std::span<const Piece> pieces;
        int kv_head;

        int count() const { return static_cast<int>(pieces.size()) * call.group_; }
        const Piece& piece(int row) const { return pieces[row / call.group_]; }

        /// Scores of prefix positions go to the weights of those positions. Scores of the slots of `block` go
        /// to the positions whose `ancestor_slots` list them.
        void score(ScoreTile tile, const int* block) const {
            const float* q[at_once];
            float* scores[at_once];
            float apart[at_once][key_lanes];
            for (int first = 0; first < count(); first += at_once) {
                tile.rows = std::min(at_once, count() - first);
                for (int r = 0; r < tile.rows; ++r) {
                    const int group = (first + r) % call.group_;
                    q[r] = piece(first + r).query->q +
                           std::ptrdiff_t{kv_head * call.group_ + group} * call.shape_.head_dim;
                    scores[r] = block != nullptr
                                    ? apart[r]
                                    : piece(first + r).weights + std::ptrdiff_t{group} * attention_chunk;
                }
                tile.q = q;
                tile.scores = scores;
                call.kernels_.score_blocks(tile);
                tile.fetch_values = nullptr;
                for (int r = 0; block != nullptr && r < tile.rows; ++r)
                    copy_scores(first + r, *block, apart[r]);
            }
        }
        void copy_scores(int row, int block, const float* scores) const {
            const Piece& of = piece(row);
            float* weights = of.weights + std::ptrdiff_t{row % call.group_} * attention_chunk + of.in_prefix;
            for (std::size_t i = 0; i < of.ancestor_slots.size(); ++i)
                if (of.ancestor_slots[i] / key_lanes == block)
                    weights[i] = scores[of.ancestor_slots[i] % key_lanes];
        }
        void mix(MixTile tile) const {
            const float* weights[at_once];
            float* out[at_once];
            for (int first = 0; first < count(); first += at_once) {
                tile.rows = std::min(at_once, count() - first);
                for (int r = 0; r < tile.rows; ++r) {
                    const std::ptrdiff_t group = (first + r) % call.group_;
                    weights[r] = piece(first + r).weights + group * attention_chunk;
                    out[r] = piece(first + r).partials + group * call.partial_;
                }
                tile.weights = weights;
                tile.out = out;
                call.kernels_.mix(tile);
            }
        }
    };

    /// One tile of queries and one chunk: first all scores, while the keys are in cache, then all values.
    void attend(int first, int kv_head, int chunk, float* weights, float* partials,
                std::size_t per_query) const {
        Piece pieces[tile_queries];
        int count = 0;
        for (int q = first; q < tile_end(first); ++q) {
            const AttentionQuery& query = queries_[q];
            const int begin = chunk * attention_chunk,
                      end = std::min(num_positions(query), begin + attention_chunk);
            if (end <= begin) continue;
            Piece& piece = pieces[count];
            piece.query = &query;
            piece.in_prefix = std::clamp(query.prefix - begin, 0, end - begin);
            const auto find_slot = [&](int position) {
                return query.ancestor_slots[position - query.prefix];
            };
            // A chain of slots is contiguous, like a prefix.
            while (begin + piece.in_prefix < end &&
                   find_slot(begin + piece.in_prefix) == begin + piece.in_prefix)
                ++piece.in_prefix;
            const int tail_begin = begin + piece.in_prefix;
            piece.ancestor_slots =
                tail_begin == end ? std::span<const std::int32_t>()
                                  : query.ancestor_slots.subspan(tail_begin - query.prefix, end - tail_begin);
            piece.weights = weights + static_cast<std::ptrdiff_t>(count) * group_ * attention_chunk;
            piece.partials = partials + numel(q - first, per_query) + partial_floats(chunk);
            ++count;
        }
        // Adjacent queries of one sequence share its keys and values.
        for (int begin = 0, end = 0; begin < count; begin = end) {
            while (end < count && pieces[end].query->keys == pieces[begin].query->keys &&
                   pieces[end].query->values == pieces[begin].query->values)
                ++end;
            attend(std::span<const Piece>(pieces + begin, pieces + end), kv_head, chunk);
        }
    }

    void attend(std::span<const Piece> pieces, int kv_head, int chunk) const {
        const HeadRows rows{*this, pieces, kv_head};
        int shared = attention_chunk, longest = 0;
        for (const Piece& piece : pieces) {
            shared = std::min(shared, piece.in_prefix);
            longest = std::max(longest, piece.in_prefix);
        }
        const int first_slot = chunk * attention_chunk;
        ScoreTile tile = score_tile(*pieces.front().query, kv_head, first_slot / key_lanes);
        tile.blocks = ceil_div(longest, key_lanes);
        tile.fetch_values = value_row(*pieces.front().query, kv_head, first_slot);
        if (longest > 0) rows.score(tile, nullptr);
        score_ancestors(rows, pieces, kv_head);
        for (const Piece& piece : pieces) {
            for (int g = 0; g < group_; ++g)
                kernels_.exp2_scores(piece.weights + g * attention_chunk, piece.positions(), shape_.scale,
                                     piece.partials + g * partial_ + shape_.head_dim);
        }
        std::int32_t slots[attention_chunk];
        for (int p = 0; p < longest; ++p) slots[p] = first_slot + p;
        rows.mix(mix_tile(*pieces.front().query, kv_head, slots, 0, shared));
        for (std::size_t i = 0; i < pieces.size(); ++i) {
            const Piece& piece = pieces[i];
            if (piece.positions() == shared) continue;
            for (int p = shared; p < piece.in_prefix; ++p) slots[p] = first_slot + p;
            std::copy(piece.ancestor_slots.begin(), piece.ancestor_slots.end(), slots + piece.in_prefix);
            HeadRows{*this, pieces.subspan(i, 1), kv_head}.mix(
                mix_tile(*piece.query, kv_head, slots, shared, piece.positions()));
        }
    }

    /// Scores of the slots after the prefix: each block of keys is read once for all rows that attend to it.
    void score_ancestors(const HeadRows& rows, std::span<const Piece> pieces, int kv_head) const {
        for (int block = next_block(pieces, -1); block >= 0; block = next_block(pieces, block)) {
            ScoreTile tile = score_tile(*pieces.front().query, kv_head, block);
            tile.blocks = 1;
            rows.score(tile, &block);
        }
    }

    /// Returns the first block of keys after `block` that any list contains; -1 = none.
    static int next_block(std::span<const Piece> pieces, int block) {
        int next = std::numeric_limits<int>::max();
        for (const Piece& piece : pieces) {
            for (const std::int32_t slot : piece.ancestor_slots)
                if (slot / key_lanes > block) next = std::min(next, slot / key_lanes);
        }
        return next == std::numeric_limits<int>::max() ? -1 : next;
    }

    ScoreTile score_tile(const AttentionQuery& query, int kv_head, int block) const {
        ScoreTile tile;
        tile.fp16 = shape_.kv == KvType::f16;
        tile.head_dim = shape_.head_dim;
        tile.value_stride = static_cast<std::int64_t>(shape_.kv_heads) * shape_.head_dim;
        tile.block_stride = tile.value_stride * key_lanes;
        tile.keys = at(query.keys, block * tile.block_stride +
                                       static_cast<std::int64_t>(kv_head) * shape_.head_dim * key_lanes);
        return tile;
    }

    MixTile mix_tile(const AttentionQuery& query, int kv_head, const std::int32_t* slots, int first,
                     int last) const {
        MixTile tile;
        tile.values = value_row(query, kv_head, 0);
        tile.fp16 = shape_.kv == KvType::f16;
        tile.stride = static_cast<std::int64_t>(shape_.kv_heads) * shape_.head_dim;
        tile.slots = slots;
        tile.first = first;
        tile.last = last;
        tile.head_dim = shape_.head_dim;
        return tile;
    }

    const void* value_row(const AttentionQuery& query, int kv_head, int slot) const {
        return at(query.values, (std::int64_t{slot} * shape_.kv_heads + kv_head) * shape_.head_dim);
    }
    const void* at(const void* rows, std::int64_t values) const {
        return static_cast<const std::byte*>(rows) +
               values * static_cast<std::int64_t>(bytes_per_value(shape_.kv));
    }

    void join(const AttentionQuery& query, int kv_head, const float* partials) const {
        for (int g = 0; g < group_; ++g) {
            float* out = query.out + static_cast<std::ptrdiff_t>(kv_head * group_ + g) * shape_.head_dim;
            kernels_.join_chunks(partials + g * partial_, num_chunks(query),
                                 static_cast<std::int64_t>(group_) * partial_, shape_.head_dim, out);
        }
    }

    ThreadPool& pool_;
    const RowKernels& kernels_;
    const AttentionShape& shape_;
    std::span<const AttentionQuery> queries_;
    int group_;    ///< query heads per key/value head
    int partial_;  ///< floats of one head's partial
    int max_chunks_ = 0;
    std::int64_t positions_ = 0;
};

}  // namespace

void attention(ThreadPool& pool, const AttentionShape& shape, std::span<const AttentionQuery> queries) {
    assert(shape.kv_heads > 0 && shape.heads % shape.kv_heads == 0);
    if (!queries.empty()) Call(pool, shape, queries).run();
}

}  // namespace draftscope::kernels
