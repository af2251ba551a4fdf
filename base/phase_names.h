#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace draftscope {

/// The phases as stored rows (table `phase`), in the order of tables and stacked bars. A test checks that the
/// ids equal those of the enum in base/phase.h.
struct PhaseRow {
    int id = 0;
    std::string_view name;
    int parent_id = 0;         ///< 0 = none
    std::uint32_t rgb = 0;     ///< 0xRRGGBB, Okabe-Ito
    bool first_class = false;  ///< listed in every table, even if it took no time
};

/// Indexed by id; row 0 is `none`.
inline constexpr std::array<PhaseRow, 14> phase_rows = {{
    {0, "none", 0, 0x808080, false},
    {1, "prefill", 0, 0x999999, false},
    {2, "backbone", 0, 0x0072B2, true},
    {3, "router", 0, 0x56B4E9, false},
    {4, "head", 0, 0xD55E00, true},
    {5, "topk", 0, 0xF0E442, true},
    {6, "softmax", 5, 0xC9BE2C, false},
    {7, "gather", 0, 0xCC79A7, true},
    {8, "remap", 7, 0xA65A85, false},
    {9, "rerank", 0, 0x5E8C7A, false},
    {10, "verify", 0, 0x009E73, true},
    {11, "accept", 0, 0xE69F00, false},
    {12, "commit", 0, 0x5A5A5A, false},
    {13, "remainder", 0, 0xB0B0B0, true},
}};
inline constexpr int remainder_phase_id = 13;

}  // namespace draftscope
