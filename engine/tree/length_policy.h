#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace draftscope {

/// Chooses how many tokens a chain drafts in each round of one text, from what was accepted before.
class LengthPolicy {
  public:
    virtual ~LengthPolicy() = default;
    /// Returns the drafts of the next round, 0 to the policy's maximum.
    virtual int next() = 0;
    /// Called after each round. `accepted` is without the bonus token.
    virtual void update(int draft_tokens, int accepted) = 0;
};

struct LengthParam {
    std::string_view name;
    double usual = 0, min = 0, max = 0;
    bool is_integer = true;
};

/// A registered policy. The first parameter of each is `max`, the longest chain.
struct LengthPolicyInfo {
    std::string_view id;
    std::vector<LengthParam> params;
    std::unique_ptr<LengthPolicy> (*make)(std::span<const double> values);
};
std::span<const LengthPolicyInfo> length_policies();

/// A policy with its numbers, as "--tree adaptive:POLICY" names it. Each text begins one of its own.
struct AdaptiveLength {
    const LengthPolicyInfo* policy = nullptr;
    std::vector<double> values;  ///< in the order of the policy's parameters

    int max() const { return static_cast<int>(values.front()); }
    std::unique_ptr<LengthPolicy> begin() const { return policy->make(values); }
    bool operator==(const AdaptiveLength&) const = default;
};
/// Parses "POLICY[,key=value...]"; bad_input names what is unknown or out of range.
Result<AdaptiveLength> parse_adaptive_length(std::string_view text);
/// Returns the canonical text, with the numbers that are not the usual ones.
std::string to_text(const AdaptiveLength& length);

}  // namespace draftscope
