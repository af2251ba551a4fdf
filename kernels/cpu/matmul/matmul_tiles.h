#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/matmul/matmul_kernels.h"
#include "kernels/cpu/matmul/tile.h"

/// Loops over the blocks and rows of one matmul in register tiles. Every tile shape adds the products of an
/// output in the same order, so the tiling does not affect results. Only files of one instruction set include
/// this header. Internal linkage: each file has its own copy.
namespace draftscope::kernels {
namespace {

/// Prefetches one line for every line of weights that is used. Unlike the hardware prefetcher, it does not
/// stop at each 4 KiB page. One gapless stream per thread is a tenth faster than two. Lines go to L2, which
/// has space for the prefetch distance.
class StreamReader {
  public:
    explicit StreamReader(const MatmulWork& work)
        : work_stream_(work.stream), stream_{work.weights, work.weights + line, work.weights, 0, line} {
        if (work_stream_ != nullptr) stream_ = *work_stream_;
    }
    ~StreamReader() {
        if (work_stream_ != nullptr) work_stream_->at = stream_.at;
    }
    StreamReader(const StreamReader&) = delete;
    StreamReader& operator=(const StreamReader&) = delete;
    void fetch_line() {
        fetch(stream_.at);
        stream_.at += stream_.step;
        // The next line may be in the next product's weights.
        const bool passed =
            static_cast<std::size_t>(stream_.at - stream_.end) < static_cast<std::size_t>(stream_.step);
        stream_.at = passed ? stream_.next : stream_.at;
    }
    /// Prefetches for `Lines` lines of weights, with one test of the end for all.
    template <int Lines>
    void fetch_lines() {
        if (static_cast<std::size_t>(stream_.end - stream_.at) > static_cast<std::size_t>(Lines * line)) {
            const std::byte* at = stream_.at;
#pragma GCC unroll 16
            for (int i = 0; i < Lines; ++i, at += stream_.step) fetch(at);
            stream_.at = at;
        } else {
            for (int i = 0; i < Lines; ++i) fetch_line();
        }
    }

  private:
    static constexpr std::ptrdiff_t line = 64;
    [[gnu::always_inline]] static void fetch(const std::byte* at) {
        __builtin_prefetch(at, 0, 2);
    }

    PrefetchState* work_stream_;
    PrefetchState stream_;
};

/// Positions at a constant distance, such as rows of activations. Up to eight share one pointer and the
/// offsets 1, 3, 5 and 7, which x86 scales by 2 and 4: as one pointer each they would not fit the general
/// registers.
template <int Count>
class StridedPointers {
  public:
    StridedPointers(const std::int8_t* first, long stride)
        : one_(stride), three_(3 * stride), five_(5 * stride), seven_(7 * stride) {
        // Hides how the offsets are related, so that GCC does not derive one from another in the loop.
        asm("" : "+r"(one_), "+r"(three_), "+r"(five_), "+r"(seven_));
#pragma GCC unroll 4
        for (int b = 0; b < bases; ++b) base_[b] = first + 8 * b * stride;
    }
    [[gnu::always_inline]] const std::int8_t* operator[](int i) const {
        const std::int8_t* base = base_[i / 8];
        switch (i % 8) {
            case 1:
                return base + one_;
            case 2:
                return base + 2 * one_;
            case 3:
                return base + three_;
            case 4:
                return base + 4 * one_;
            case 5:
                return base + five_;
            case 6:
                return base + 2 * three_;
            case 7:
                return base + seven_;
            default:
                return base;
        }
    }
    [[gnu::always_inline]] void advance(long bytes) {
#pragma GCC unroll 4
        for (int b = 0; b < bases; ++b) base_[b] += bytes;
    }

  private:
    static constexpr int bases = (Count + 7) / 8;
    const std::int8_t* base_[bases];
    long one_, three_, five_, seven_;
};

/// Computes R blocks of outputs for T rows by `Tile::run<R, T>(work, block, row)`. R is Tile::blocks, T up to
/// Tile::rows; or R is 1, T up to Tile::single_rows, if that is given. Weights that are streamed for up to
/// one_pass_rows rows are read block by block, unless blocks are so short that the transition between them
/// would cost time.
template <typename Tile>
struct TileWalk {
    template <int R>
    static constexpr int height() {
        if constexpr (R == 1 && requires { Tile::single_rows; }) return Tile::single_rows;
        return Tile::rows;
    }

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
        constexpr int max_height = height<R>();
        const int tiles = (work.rows + max_height - 1) / max_height;
        for (int t = 0; t < tiles; ++t) {
            const int first = work.rows * t / tiles;
            const int last = work.rows * (t + 1) / tiles;
            if (work.stream != nullptr) work.stream->step = line * (t + 1) / tiles - line * t / tiles;
            run_rows<R, max_height>(work, block, first, last - first);
        }
    }

    static bool in_order(const MatmulWork& work) {
        if constexpr (requires { Tile::single_rows; })
            return work.stream != nullptr && work.rows <= one_pass_rows && work.k > quant_block;
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
    static constexpr int one_pass_rows = 16;

    static void fetch_ahead(PrefetchState& stream, const std::byte* used) {
        constexpr std::ptrdiff_t distance = 16 << 10;
        const std::byte* to =
            std::min(used + (Tile::blocks - 1) * stream.block + distance, stream.end - line);
        if (stream.at < used) return;
        for (; stream.at < to; stream.at += line) __builtin_prefetch(stream.at, 0, 2);
    }
};

}  // namespace
}  // namespace draftscope::kernels
