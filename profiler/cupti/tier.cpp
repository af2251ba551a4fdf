#include "profiler/cupti/tier.h"

#include "base/enum_text.h"

namespace draftscope {

std::string_view to_text(Tier tier) {
    constexpr std::string_view texts[] = {"T0", "T1", "T2"};
    return enum_text(texts, tier);
}

Result<Tier> parse_tier(std::string_view text) {
    if (text.empty() || text == "auto") return Tier::t0;
    std::string_view digit = text;
    if (digit.front() == 'T' || digit.front() == 't') digit.remove_prefix(1);
    if (digit.size() == 1 && digit[0] >= '0' && digit[0] <= '2') return static_cast<Tier>(digit[0] - '0');
    return bad_input(
        "--tier {}: unknown; choose 0 (clocks), 1 (a GPU interval per graph) or 2 (every kernel); ncu reads "
        "hardware counters",
        text);
}

}  // namespace draftscope
