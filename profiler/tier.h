#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace draftscope {

/// How deep a run is measured (docs/ARCHITECTURE.md, "Tiers"). A run has one; statistics never mix them.
enum class Tier : std::uint8_t {
    t0,  ///< clocks and CUDA events: the only tier whose speeds may be compared
    t1,  ///< CUPTI, one interval per launched graph
    t2,  ///< CUPTI, every kernel, inside graphs too
    t3,  ///< GPU counters per phase; no kernels and no phase times that mean anything
};
std::string_view to_text(Tier tier);  ///< "T0" ... "T3"
/// "0" ... "3", "T0" ... "t3", "auto" (= T0). Anything else is bad_input.
Result<Tier> parse_tier(std::string_view text);

/// What a run gets of the tier that was asked for.
struct TierChoice {
    Tier asked = Tier::t0;
    Tier used = Tier::t0;
    std::string why;  ///< one line when `used` is less than asked, with what to do; "" otherwise
};

}  // namespace draftscope
