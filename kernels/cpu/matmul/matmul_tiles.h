#pragma once

#include <algorithm>

#include "kernels/cpu/matmul/matmul_kernels.h"
#include "kernels/cpu/matmul/tile.h"

/// Loops over the blocks and rows of one matmul in register tiles. Every tile shape adds the products of an
/// output in the same order, so the tiling does not affect results.
namespace draftscope::kernels {

/// Computes R blocks of outputs for T rows by `Tile::run<R, T>(work, block, row)`. R is Tile::blocks or 1; T
/// is 1 .. Tile::rows. R is 1 if weights are streamed and there are up to Tile::streamed_rows rows, unless
/// blocks are so short that the transition between blocks would cost time.
template <typename Tile>
struct TileWalk {
    template <int R, int T>
    static void run_rows(const MatmulWork& work, int block, int row, int count) {
        if (count == T) {
            Tile::template run<R, T>(work, block, row);
        } else if constexpr (T > 1) {
            run_rows<R, T - 1>(work, block, row, count);
        }
    }

    /// Tiles of nearly equal height: 8 rows are 4 + 4 rather than 6 + 2. Each prefetches an equal part of the
    /// next weights, so that memory reads never pause.
    template <int R>
    static void all_rows(const MatmulWork& work, int block) {
        const int tiles = (work.rows + Tile::rows - 1) / Tile::rows;
        for (int t = 0; t < tiles; ++t) {
            const int first = work.rows * t / tiles;
            const int last = work.rows * (t + 1) / tiles;
            if (work.stream != nullptr) work.stream->step = line * (t + 1) / tiles - line * t / tiles;
            run_rows<R, Tile::rows>(work, block, first, last - first);
        }
    }

    static bool in_order(const MatmulWork& work) {
        if constexpr (requires { Tile::streamed_rows; })
            return work.stream != nullptr && work.rows <= Tile::streamed_rows && work.k > quant_block;
        return false;
    }

    static void run(const MatmulWork& work, int begin, int end) {
        int block = begin;
        if (!in_order(work)) {
            // Lines of two blocks are used at once, but prefetched one block after the other.
            if (work.stream != nullptr) fetch_ahead(*work.stream, work.weights + begin * work.stream->block);
            for (; block + Tile::blocks <= end; block += Tile::blocks) all_rows<Tile::blocks>(work, block);
        }
        for (; block < end; ++block) all_rows<1>(work, block);
    }

  private:
    static constexpr int line = 64;

    static void fetch_ahead(PrefetchState& stream, const std::byte* used) {
        constexpr std::ptrdiff_t distance = 16 << 10;
        const std::byte* to =
            std::min(used + (Tile::blocks - 1) * stream.block + distance, stream.end - line);
        if (stream.at < used) return;
        for (; stream.at < to; stream.at += line) __builtin_prefetch(stream.at, 0, 2);
    }
};

}  // namespace draftscope::kernels
