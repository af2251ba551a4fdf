#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace draftscope {

/// Depth of measurement of a run (docs/ARCHITECTURE.md, "Tiers"). A run has one tier; statistics never mix
/// them.
enum class Tier : std::uint8_t {
    t0,  ///< clocks and CUDA events: the only tier whose speeds may be compared
    t1,  ///< CUPTI, one interval per launched graph
    t2,  ///< CUPTI, every kernel, inside graphs too
};
std::string_view to_text(Tier tier);  ///< "T0" ... "T2"
/// Parses "0" ... "2", "T0" ... "t2", "auto" (= T0). Other texts are bad_input.
Result<Tier> parse_tier(std::string_view text);

/// The requested tier and the tier that a run gets.
struct TierChoice {
    Tier requested = Tier::t0;
    Tier used = Tier::t0;
    std::string why;  ///< reason and remedy in one line if `used` is below `requested`; else ""
};

}  // namespace draftscope
