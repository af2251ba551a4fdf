#include "engine/tree/length_policy.h"

#include <algorithm>
#include <cmath>

#include "base/join_and.h"
#include "base/parse.h"

namespace draftscope {
namespace {

int to_int(double value) {
    return static_cast<int>(value);
}

/// Hugging Face transformers, schedule "heuristic_transient": two tokens more after a round that accepted
/// all, else one less (AssistedCandidateGenerator.update_candidate_strategy, 5.24.0).
class TransformersPolicy final : public LengthPolicy {
  public:
    TransformersPolicy(int max, int start) : max_(max), length_(start) {}
    int next() override { return std::min(length_, max_); }
    void update(int draft_tokens, int accepted) override {
        if (draft_tokens == 0) return;
        length_ = accepted == draft_tokens ? std::min(length_ + 2, max_) : std::max(1, length_ - 1);
    }

  private:
    int max_, length_;
};

/// ExLlamaV3's moving average, which rises faster than it falls, and pauses when little is accepted
/// (generator/job.py, 4f8ad012).
class ExllamaPolicy final : public LengthPolicy {
  public:
    ExllamaPolicy(int max, double up, double down, double skip)
        : max_(max), up_(up), down_(down), skip_(skip) {}
    int next() override {
        if (mean_ < 0) return max_;
        if (skip_ > 0 && mean_ < skip_) {
            constexpr int probe_interval = 16, probe = 2;
            return ++skipped_ % probe_interval == 0 ? std::min(probe, max_) : 0;
        }
        return std::clamp(to_int(std::ceil(mean_)), 1, max_);
    }
    void update(int draft_tokens, int accepted) override {
        if (draft_tokens == 0) return;
        const double reached = accepted >= draft_tokens ? accepted + 1 : accepted;
        mean_ = mean_ < 0 ? reached : mean_ + (reached > mean_ ? up_ : down_) * (reached - mean_);
    }

  private:
    int max_;
    double up_, down_, skip_;
    double mean_ = -1;  ///< -1 before the first round
    int skipped_ = 0;
};

/// SGLang's steps for one request: the accepted length's moving average chooses one of four lengths
/// (adaptive_spec_params.py, slot "1").
class SglangPolicy final : public LengthPolicy {
  public:
    SglangPolicy(int max, int start, double up, double down) : max_(max), up_(up), down_(down) {
        while (at_ + 1 < count && steps[at_ + 1] <= std::min(start, max)) ++at_;
        mean_ = steps[at_] - 1;
    }
    int next() override { return std::min(steps[at_], max_); }
    void update(int draft_tokens, int accepted) override {
        constexpr double decay = 0.8;
        constexpr int warmup = 10, interval = 5;
        if (draft_tokens > 0) mean_ = decay * mean_ + (1 - decay) * accepted;
        if (++rounds_ <= warmup || (rounds_ - warmup) % interval != 0) return;
        const int before = at_;
        while (at_ > 0 && mean_ <= steps[at_ - 1] - 0.5 + down_) --at_;
        if (at_ < before) return;
        while (at_ + 1 < count && steps[at_ + 1] <= max_ && mean_ > steps[at_] - 0.5 + up_) ++at_;
    }

  private:
    static constexpr int count = 4;
    static constexpr int steps[count] = {1, 3, 5, 7};
    int max_;
    double up_, down_, mean_ = 0;
    int at_ = 0, rounds_ = 0;
};

/// The longest chain in every round; the drafts' probabilities end it.
class LongestPolicy final : public LengthPolicy {
  public:
    explicit LongestPolicy(int max) : max_(max) {}
    int next() override { return max_; }
    void update(int, int) override {}

  private:
    int max_;
};

std::unique_ptr<LengthPolicy> make_longest(std::span<const double> values) {
    return std::make_unique<LongestPolicy>(to_int(values[0]));
}

float to_logprob(double probability) {
    return static_cast<float>(std::log(probability));
}

constexpr int max_drafts = 64;  // max_tree_levels

}  // namespace

std::span<const LengthPolicyInfo> length_policies() {
    // One entry per policy. `max` of transformers and exllama is our default, `start` of sglang too.
    static const LengthPolicyInfo policies[] = {
        {"transformers",
         {{"max", 20, 1, max_drafts}, {"start", 20, 1, max_drafts}},
         [](std::span<const double> v) -> std::unique_ptr<LengthPolicy> {
             return std::make_unique<TransformersPolicy>(to_int(v[0]), to_int(v[1]));
         }},
        {"exllama",
         {{"max", 8, 1, max_drafts},
          {"up", 1.3, 0, 2, false},
          {"down", 0.65, 0, 2, false},
          {"skip", 0.3, 0, max_drafts, false}},
         [](std::span<const double> v) -> std::unique_ptr<LengthPolicy> {
             return std::make_unique<ExllamaPolicy>(to_int(v[0]), v[1], v[2], v[3]);
         }},
        {"sglang",
         {{"max", 7, 1, max_drafts},
          {"start", 3, 1, max_drafts},
          {"up", 0, -1, 1, false},
          {"down", -0.25, -1, 1, false}},
         [](std::span<const double> v) -> std::unique_ptr<LengthPolicy> {
             return std::make_unique<SglangPolicy>(to_int(v[0]), to_int(v[1]), v[2], v[3]);
         }},
        // llama.cpp's p_min with the defaults of its earlier releases. Its p is over the ten best candidates,
        // ours over the head's support.
        {"p-min",
         {{"max", 16, 1, max_drafts}, {"p", 0.75, 0, 1, false}},
         make_longest,
         [](std::span<const double> v) { return ConfidenceLimits{.min_logprob = to_logprob(v[1])}; }},
        // transformers' assistant_confidence_threshold, whose draft below it is still verified.
        {"confidence",
         {{"max", 20, 1, max_drafts}, {"p", 0.4, 0, 1, false}},
         make_longest,
         [](std::span<const double> v) { return ConfidenceLimits{.min_next_logprob = to_logprob(v[1])}; }},
        // EAGLE-2's confidence of a path, the product of its probabilities. Both numbers are our defaults.
        {"cumulative",
         {{"max", 8, 1, max_drafts}, {"p", 0.3, 0, 1, false}},
         make_longest,
         [](std::span<const double> v) { return ConfidenceLimits{.min_cum_logprob = to_logprob(v[1])}; }},
    };
    return policies;
}

int ConfidenceLimits::length(std::span<const float> logprobs) const {
    float cum = 0;
    for (std::size_t i = 0; i < logprobs.size(); ++i) {
        cum += logprobs[i];
        if (!std::isfinite(logprobs[i])) continue;
        if (logprobs[i] < min_logprob || cum < min_cum_logprob) return static_cast<int>(i);
        if (logprobs[i] < min_next_logprob) return static_cast<int>(i) + 1;
    }
    return static_cast<int>(logprobs.size());
}

Result<AdaptiveLength> parse_adaptive_length(std::string_view text) {
    const std::string_view id = trim(text.substr(0, text.find(',')));
    const auto policies = length_policies();
    const auto policy = std::ranges::find(policies, id, &LengthPolicyInfo::id);
    if (policy == policies.end()) {
        std::vector<std::string> known;
        for (const LengthPolicyInfo& one : policies) known.emplace_back(one.id);
        return bad_input("tree: unknown policy adaptive:{}; known: {}", id, join_and(known));
    }
    AdaptiveLength out{&*policy, {}};
    for (const LengthParam& param : policy->params) out.values.push_back(param.usual);
    for (std::size_t comma = text.find(','); comma < text.size();) {
        const std::size_t end = std::min(text.find(',', comma + 1), text.size());
        const std::string_view piece = trim(text.substr(comma + 1, end - comma - 1));
        const std::size_t equals = std::min(piece.find('='), piece.size());
        const std::string_view value = piece.substr(std::min(equals + 1, piece.size()));
        const auto param =
            std::ranges::find(policy->params, trim(piece.substr(0, equals)), &LengthParam::name);
        if (param == policy->params.end()) {
            std::vector<std::string> known;
            for (const LengthParam& one : policy->params) known.emplace_back(one.name);
            return bad_input("tree: adaptive:{} has no parameter '{}'; it has {}", id, piece,
                             join_and(known));
        }
        const auto number = parse_number<double>(trim(value));
        if (!number || *number < param->min || *number > param->max ||
            (param->is_integer && *number != std::floor(*number)))
            return bad_input("tree: adaptive:{}: {}={} is not a {}number in {}..{}", id, param->name, value,
                             param->is_integer ? "whole " : "", param->min, param->max);
        out.values[param - policy->params.begin()] = *number;
        comma = end;
    }
    return out;
}

std::string to_text(const AdaptiveLength& length) {
    std::string out = "adaptive:" + std::string(length.policy->id);
    for (std::size_t i = 0; i < length.values.size(); ++i)
        if (const LengthParam& param = length.policy->params[i]; length.values[i] != param.usual)
            out += fmt::format(",{}={}", param.name, length.values[i]);
    return out;
}

}  // namespace draftscope
