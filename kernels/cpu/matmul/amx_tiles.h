#pragma once

#include <immintrin.h>

#include <cstdint>

/// Only AMX files include this header. Internal linkage, as in matmul_avx512_common.h.
namespace draftscope::kernels {
namespace {

constexpr int tile_rows = 16;
constexpr int row_bytes = 64;

/// The operand of ldtilecfg.
struct TileConfig {
    std::uint8_t palette = 1;
    std::uint8_t start_row = 0;
    std::uint8_t reserved[14] = {};
    std::uint16_t columns[16] = {};  ///< bytes of a row
    std::uint8_t rows[16] = {};

    void set(int tile, int rows_in, int bytes) {
        rows[tile] = static_cast<std::uint8_t>(rows_in);
        columns[tile] = static_cast<std::uint16_t>(bytes);
    }
};

/// Configures tiles for one call and releases them after it: threads without live tiles switch faster.
struct TileScope {
    /// GCC 12's _tile_loadconfig declares only 8 of the 64 bytes as read, so stores to the others may be
    /// dropped.
    explicit TileScope(const TileConfig& config) { asm volatile("ldtilecfg %0" : : "m"(config)); }
    ~TileScope() { _tile_release(); }
    TileScope(const TileScope&) = delete;
    TileScope& operator=(const TileScope&) = delete;
};

}  // namespace
}  // namespace draftscope::kernels
