#pragma once

#include "kernels/cpu/matmul_kernels.h"
#include "kernels/cpu/tile.h"

/// Walks the blocks and rows of one matmul in register tiles. Every tile shape adds the products of one
/// output in the same order, so how rows fall into tiles never shows in the result.
namespace draftscope::kernels {

/// `Tile::run<R, T>(work, block, row)` computes R blocks of outputs for T rows; R is Tile::blocks or 1 and
/// T is 1 .. Tile::rows. Where weights come as a stream and there are up to
/// Tile::streamed_rows rows, R is 1; not where blocks are so short that going from one to the next would
/// show.
template <typename Tile>
struct TileWalk {
    template <int R, int T>
    static void rows_of(const MatmulWork& work, int block, int row, int count) {
        if (count == T) {
            Tile::template run<R, T>(work, block, row);
        } else if constexpr (T > 1) {
            rows_of<R, T - 1>(work, block, row, count);
        }
    }

    /// Tiles of nearly equal height: 8 rows are 4 + 4 rather than 6 + 2.
    template <int R>
    static void all_rows(const MatmulWork& work, const MatmulWork& later, int block) {
        const int tiles = (work.rows + Tile::rows - 1) / Tile::rows;
        for (int t = 0; t < tiles; ++t) {
            const int first = work.rows * t / tiles;
            const int last = work.rows * (t + 1) / tiles;
            rows_of<R, Tile::rows>(t == 0 ? work : later, block, first, last - first);
        }
    }

    static bool streamed(const MatmulWork& work) {
        if constexpr (requires { Tile::streamed_rows; })
            return work.stream != nullptr && work.rows <= Tile::streamed_rows && work.k > quant_block;
        return false;
    }

    static void run(const MatmulWork& work, int begin, int end) {
        int block = begin;
        if (streamed(work)) {
            // The first tile fetches what comes next; the others find the block in the cache.
            MatmulWork later = work;
            later.stream = nullptr;
            for (; block < end; ++block) all_rows<1>(work, later, block);
            return;
        }
        for (; block + Tile::blocks <= end; block += Tile::blocks) all_rows<Tile::blocks>(work, work, block);
        for (; block < end; ++block) all_rows<1>(work, work, block);
    }
};

}  // namespace draftscope::kernels
