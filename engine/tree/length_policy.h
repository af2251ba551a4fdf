#pragma once

#include <algorithm>
#include <limits>
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

/// Where a chain ends early, by the log-probabilities of its drafts. They are known while it is drafted.
struct ConfidenceLimits {
    static constexpr float none = -std::numeric_limits<float>::infinity();
    float min_logprob = none;       ///< a draft below it is dropped, and the chain ends
    float min_cum_logprob = none;   ///< the same for the sum from the chain's first draft on
    float min_next_logprob = none;  ///< a draft below it is the chain's last
    bool any() const { return std::max({min_logprob, min_cum_logprob, min_next_logprob}) > none; }
    /// Returns how many of a chain's drafts stay. A draft that is not a number does.
    int length(std::span<const float> logprobs) const;
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
    ConfidenceLimits (*limits)(std::span<const double> values) = nullptr;  ///< null = none
};
std::span<const LengthPolicyInfo> length_policies();

/// A policy with its numbers, as "--tree adaptive:POLICY" names it. Each text begins one of its own.
struct AdaptiveLength {
    const LengthPolicyInfo* policy = nullptr;
    std::vector<double> values;  ///< in the order of the policy's parameters

    int max() const { return static_cast<int>(values.front()); }
    std::unique_ptr<LengthPolicy> begin() const { return policy->make(values); }
    ConfidenceLimits limits() const {
        return policy->limits == nullptr ? ConfidenceLimits() : policy->limits(values);
    }
    bool operator==(const AdaptiveLength&) const = default;
};
/// Parses "POLICY[,key=value...]"; bad_input names what is unknown or out of range.
Result<AdaptiveLength> parse_adaptive_length(std::string_view text);
/// Returns the canonical text, with the numbers that are not the usual ones.
std::string to_text(const AdaptiveLength& length);

}  // namespace draftscope
