#include "kernels/cpu/attention.h"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <limits>

#include "base/numel.h"
#include "kernels/cpu/matmul/layout.h"
#include "kernels/cpu/threads/fp_mode.h"
#include "kernels/cpu/threads/work_stealing.h"
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
    struct Unit;
    struct Next;
    struct Piece;

    std::size_t partial_floats(int chunks) const { return numel(chunks, group_ * partial_); }
    /// A thread's scratch memory for a tile of queries and a chunk.
    struct Scratch {
        float* weights;  ///< softmax weights, [rows, attention_chunk]
        float* q;        ///< the queries of a key/value head in the layout of ScoreTile::q
        float* apart;    ///< scores of one block of keys, [rows, key_lanes]
    };
    std::size_t scratch_floats() const {
        return numel(tile_queries * group_,
                     attention_chunk + round_up(shape_.head_dim, query_part) + key_lanes);
    }
    Scratch split(float* scratch) const {
        float* q = scratch + numel(tile_queries * group_, attention_chunk);
        return {scratch, q, q + numel(tile_queries * group_, round_up(shape_.head_dim, query_part))};
    }
    int tile_end(int first) const {
        return std::min(first + tile_queries, static_cast<int>(queries_.size()));
    }

    /// Computes a tile of queries against all keys of one key/value head.
    void run_item(int thread, int item) {
        const int kv_head = item % shape_.kv_heads;
        const int first = item / shape_.kv_heads * tile_queries;
        const std::size_t per_query = partial_floats(max_chunks_);
        const std::size_t floats = scratch_floats() + per_query * tile_queries;
        auto* scratch = reinterpret_cast<float*>(pool_.scratch(thread, floats * sizeof(float)));
        float* partials = scratch + scratch_floats();
        for (int chunk = 0; chunk < max_chunks_; ++chunk) {
            const Next next = chunk + 1 < max_chunks_ ? Next{&queries_[first], {kv_head, chunk + 1}} : Next{};
            attend(first, {kv_head, chunk}, split(scratch), partials, per_query, next);
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
        // All heads of a slot are contiguous in memory.
        const auto unit = [&](int u) { return Unit{u % shape_.kv_heads, u / shape_.kv_heads}; };
        const int units = max_chunks_ * shape_.kv_heads;
        WorkStealingRange shares(units, std::min({threads, units, WorkStealingRange::max_threads}), 1);
        pool_.parallel(shares.threads(), [&](int part) {
            const Scratch tile_scratch =
                split(reinterpret_cast<float*>(pool_.scratch(part, scratch_floats() * sizeof(float))));
            const auto run = [&](int u, bool more) {
                const auto [kv_head, chunk] = unit(u);
                float* head = partials + numel(kv_head, per_head);
                for (int first = 0; first < count; first += tile_queries) {
                    const bool last = first + tile_queries >= count;
                    const Next next = last && more ? Next{&queries_.front(), unit(u + 1)} : Next{};
                    attend(first, unit(u), tile_scratch, head + numel(first, per_query), per_query, next);
                }
                if (std::atomic_ref(chunks_left[kv_head]).fetch_sub(1, std::memory_order_acq_rel) > 1) return;
                for (int q = 0; q < count; ++q) {
                    join(queries_[q], kv_head, head + numel(q, per_query));
                }
            };
            shares.take_all(part, [&](int begin, int end, bool is_local) {
                for (int u = begin; u < end; ++u) run(u, u + 1 < (is_local ? units : end));
            });
        });
    }

    /// A chunk of positions of one key/value head.
    struct Unit {
        int kv_head = 0, chunk = 0;
    };
    /// The keys and values that a thread reads next; null = unknown.
    struct Next {
        const AttentionQuery* query = nullptr;
        Unit unit;
    };

    /// The part of a query in one chunk.
    struct Piece {
        const AttentionQuery* query;
        int in_prefix;                                 ///< positions whose slots equal their numbers
        std::span<const std::int32_t> ancestor_slots;  ///< slots of the other positions
        float* weights;                                ///< [group_, attention_chunk]
        float* partials;                               ///< [group_, partial_]

        int positions() const { return in_prefix + static_cast<int>(ancestor_slots.size()); }
    };

    /// One tile of queries and one chunk: first all scores, while the keys are in cache, then all values.
    void attend(int first, Unit unit, const Scratch& scratch, float* partials, std::size_t per_query,
                Next next) const {
        const int chunk = unit.chunk;
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
            piece.weights = scratch.weights + static_cast<std::ptrdiff_t>(count) * group_ * attention_chunk;
            piece.partials = partials + numel(q - first, per_query) + partial_floats(chunk);
            ++count;
        }
        // Adjacent queries of one sequence share its keys and values.
        for (int begin = 0, end = 0; begin < count; begin = end) {
            while (end < count && pieces[end].query->keys == pieces[begin].query->keys &&
                   pieces[end].query->values == pieces[begin].query->values)
                ++end;
            attend(std::span<const Piece>(pieces + begin, pieces + end), unit, scratch,
                   end < count ? Next{pieces[end].query, unit} : next);
        }
    }

    void attend(std::span<const Piece> pieces, Unit unit, const Scratch& scratch, Next next) const {
        const auto [kv_head, chunk] = unit;
        int shared = attention_chunk, longest = 0;
        for (const Piece& piece : pieces) {
            shared = std::min(shared, piece.in_prefix);
            longest = std::max(longest, piece.in_prefix);
        }
        pack_queries(pieces, kv_head, scratch.q);
        const AttentionQuery& any = *pieces.front().query;
        const int first_slot = chunk * attention_chunk, rows = static_cast<int>(pieces.size()) * group_;
        ScoreTile tile = score_tile(any, kv_head, first_slot / key_lanes);
        tile.q = scratch.q;
        tile.rows = rows;
        tile.scores = pieces.front().weights;
        tile.score_stride = attention_chunk;
        tile.blocks = ceil_div(longest, key_lanes);
        tile.fetch_values = value_row(any, kv_head, first_slot);
        if (longest > 0) kernels_.score_blocks(tile);
        score_ancestors(pieces, kv_head, tile, scratch.apart);
        for (const Piece& piece : pieces)
            kernels_.exp2_scores(piece.weights, group_, piece.positions(), shape_.scale,
                                 piece.partials + shape_.head_dim, partial_);
        std::int32_t slots[attention_chunk];
        for (int p = 0; p < longest; ++p) slots[p] = first_slot + p;
        MixTile all = mix_tile(any, kv_head, slots, 0, shared);
        if (next.query != nullptr) add_next(next, all);
        if (shared > 0) mix(pieces, all);
        for (std::size_t i = 0; i < pieces.size(); ++i) {
            const Piece& piece = pieces[i];
            if (piece.positions() == shared) continue;
            for (int p = shared; p < piece.in_prefix; ++p) slots[p] = first_slot + p;
            std::copy(piece.ancestor_slots.begin(), piece.ancestor_slots.end(), slots + piece.in_prefix);
            mix(pieces.subspan(i, 1), mix_tile(any, kv_head, slots, shared, piece.positions()));
        }
    }

    void pack_queries(std::span<const Piece> pieces, int kv_head, float* q) const {
        const std::ptrdiff_t first = std::ptrdiff_t{kv_head} * group_ * shape_.head_dim;
        for (int part = 0; part < shape_.head_dim; part += query_part) {
            const int count = std::min(query_part, shape_.head_dim - part);
            for (const Piece& piece : pieces)
                for (int g = 0; g < group_; ++g, q += query_part)
                    std::copy_n(piece.query->q + first + g * shape_.head_dim + part, count, q);
        }
    }

    /// Scores of the slots after the prefix: each block of keys is read once for all rows. `tile` has the
    /// rows, `apart` their scores.
    void score_ancestors(std::span<const Piece> pieces, int kv_head, ScoreTile tile, float* apart) const {
        tile.scores = apart;
        tile.score_stride = key_lanes;
        tile.blocks = 1;
        tile.fetch_values = nullptr;
        for (int block = next_block(pieces, -1); block >= 0; block = next_block(pieces, block)) {
            tile.keys = score_tile(*pieces.front().query, kv_head, block).keys;
            kernels_.score_blocks(tile);
            const float* scores = apart;
            for (const Piece& piece : pieces)
                for (int g = 0; g < group_; ++g, scores += key_lanes) {
                    float* weights = piece.weights + g * attention_chunk + piece.in_prefix;
                    for (std::size_t i = 0; i < piece.ancestor_slots.size(); ++i)
                        if (piece.ancestor_slots[i] / key_lanes == block)
                            weights[i] = scores[piece.ancestor_slots[i] % key_lanes];
                }
        }
    }

    /// Mixes the values of a tile for the heads of `pieces`, as many as fit at a time.
    void mix(std::span<const Piece> pieces, MixTile tile) const {
        constexpr int at_once = 24;
        float* out[at_once];
        const int rows = static_cast<int>(pieces.size()) * group_;
        for (int first = 0; first < rows; first += at_once) {
            tile.rows = std::min(at_once, rows - first);
            for (int r = 0; r < tile.rows; ++r)
                out[r] = pieces[(first + r) / group_].partials + (first + r) % group_ * partial_;
            tile.weights = pieces.front().weights + first * attention_chunk;
            tile.out = out;
            kernels_.mix(tile);
            tile.next_positions = 0;
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

    void add_next(const Next& next, MixTile& tile) const {
        const int first_slot = next.unit.chunk * attention_chunk;
        tile.next_keys = score_tile(*next.query, next.unit.kv_head, first_slot / key_lanes).keys;
        tile.next_values = value_row(*next.query, next.unit.kv_head, first_slot);
        tile.next_positions = std::clamp(num_positions(*next.query) - first_slot, 0, attention_chunk);
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
