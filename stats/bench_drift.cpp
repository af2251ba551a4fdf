#include "stats/bench_drift.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "stats/compare_text.h"

namespace draftscope {

namespace {

/// Ratio of blocks above which a warning is given (our choice). Below it, differences in text length may
/// explain it.
constexpr double large_range = 1.15;
constexpr double min_rounds = 10;

const VerifyTimes* times_at(const BenchMethodSamples& method, std::size_t repetition, std::size_t prompt) {
    if (repetition >= method.verify.size() || prompt >= method.verify[repetition].size()) return nullptr;
    const VerifyTimes& times = method.verify[repetition][prompt];
    return times.empty() ? nullptr : &times;
}

std::vector<VerifyPair> verify_pairs(const BenchSamples& samples, const BenchMethodSamples& a,
                                     const BenchMethodSamples& b) {
    std::map<std::size_t, VerifyPair> conversations;
    for (std::size_t r = 0; r < a.verify.size(); ++r)
        for (std::size_t p = 0; p < samples.prompts.size(); ++p) {
            const VerifyTimes *of_a = times_at(a, r, p), *of_b = times_at(b, r, p);
            if (of_a == nullptr || of_b == nullptr) continue;
            VerifyPair& pair = conversations[samples.prompts[p].conversation];
            add(pair.a, *of_a);
            add(pair.b, *of_b);
        }
    std::vector<VerifyPair> out;
    for (auto& [conversation, pair] : conversations) out.push_back(std::move(pair));
    return out;
}

std::optional<BenchDrift::Blocks> compare_blocks(const BenchSamples& samples, std::size_t m) {
    const BenchMethodSamples& method = samples.methods[m];
    std::map<std::pair<std::size_t, std::size_t>, VerifyTimes> blocks;
    VerifyTimes all;
    for (std::size_t r = 0; r < method.verify.size(); ++r)
        for (std::size_t p = 0; p < samples.prompts.size(); ++p)
            if (const VerifyTimes* times = times_at(method, r, p)) {
                add(blocks[{r, samples.prompts[p].block}], *times);
                add(all, *times);
            }
    if (blocks.size() < 2) return std::nullopt;
    BenchDrift::Blocks out{m, 1, 1};
    for (const auto& [place, times] : blocks) {
        double ns = 0, expected = 0, rounds = 0;
        for (const auto& [shape, time] : times) {
            ns += time.ns;
            rounds += time.rounds;
            expected += time.rounds * all.at(shape).ns / all.at(shape).rounds;
        }
        if (rounds < min_rounds) continue;
        out.low = std::min(out.low, ns / expected);
        out.high = std::max(out.high, ns / expected);
    }
    return out;
}

}  // namespace

BenchDrift bench_drift(const BenchSamples& samples, const BootstrapOptions& options) {
    BenchDrift out;
    for (const BenchPrompt& prompt : samples.prompts)
        out.block_count = std::max(out.block_count, prompt.block + 1);
    for (std::size_t a = 0; a < samples.methods.size(); ++a) {
        out.repetitions = std::max(out.repetitions, samples.methods[a].verify.size());
        for (std::size_t b = a + 1; b < samples.methods.size(); ++b) {
            const auto pairs = verify_pairs(samples, samples.methods[a], samples.methods[b]);
            if (const auto control = machine_control(pairs, options)) out.methods.push_back({a, b, *control});
        }
        if (const auto blocks = compare_blocks(samples, a)) out.blocks.push_back(*blocks);
    }
    return out;
}

std::vector<std::string> drift_warnings(const BenchDrift& drift, std::span<const std::string> names) {
    std::vector<std::string> out;
    const auto apart = [](const BenchDrift::Methods& one) {
        return std::abs(std::log(one.control.ratio.value));
    };
    const BenchDrift::Methods* worst = nullptr;
    for (const BenchDrift::Methods& one : drift.methods)
        if (one.control.differs.value_or(false) && (worst == nullptr || apart(one) > apart(*worst)))
            worst = &one;
    if (worst != nullptr) {
        const double ratio = worst->control.ratio.value;
        out.push_back(fmt::format(
            "the machine's speed differed between methods: verification of equal trees, which "
            "does not depend on the head, took {} {} time per round under {} than under {}; "
            "differences of that size are not due to the heads",
            change_percent(ratio), ratio > 1 ? "more" : "less", names[worst->b], names[worst->a]));
    }
    const BenchDrift::Blocks* widest = nullptr;
    for (const BenchDrift::Blocks& one : drift.blocks)
        if (one.high / one.low > large_range &&
            (widest == nullptr || one.high / one.low > widest->high / widest->low))
            widest = &one;
    if (widest != nullptr)
        out.push_back(fmt::format(
            "the machine's speed varied: verification under {} took {:.2f} to {:.2f} times its mean in "
            "different blocks; an idle machine or a larger --repeat gives narrower intervals",
            names[widest->method], widest->low, widest->high));
    if (drift.block_count == 1 && drift.repetitions == 1 && names.size() > 1)
        out.push_back(
            "one block: the methods did not take turns, so a change of the machine's speed is part of the "
            "result; give more conversations, a smaller --block or --repeat 2");
    return out;
}

}  // namespace draftscope
