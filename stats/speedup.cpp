#include "stats/speedup.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <unordered_map>

#include "capture/run_setting.h"

namespace draftscope {

namespace {

using PromptKey = std::tuple<std::string_view, int, std::string_view>;
using Conversation = std::pair<std::string_view, std::string_view>;

struct Rate {
    double committed = 0, ns = 0;

    void add(const Rate& other, double times = 1) {
        committed += times * other.committed;
        ns += times * other.ns;
    }
    double per_second() const { return ns > 0 ? 1e9 * committed / ns : 0.0; }
};

struct PromptRate {
    Rate rate;
    Conversation conversation;
};

/// Returns a run's prompts with counted time. A prompt that the run decoded twice is one entry.
std::map<PromptKey, PromptRate> prompt_rates(const Snapshot& snapshot, RowId run_id) {
    std::map<PromptKey, PromptRate> out;
    std::unordered_map<RowId, Rate> by_prompt;
    for (const RoundEntry& entry : snapshot.rounds) {
        const StepEntry& step = snapshot.steps[entry.step_index];
        if (entry.row.run_id != run_id || !step.row.time_counts()) continue;
        const auto ns = static_cast<double>(step.row.busy_ns());
        by_prompt[entry.row.prompt_id].add(
            {static_cast<double>(entry.row.committed), ns / std::max(1u, step.rounds.count)});
    }
    for (const auto& [id, rate] : by_prompt) {
        const PromptRow* prompt = snapshot.prompt(id);
        if (prompt == nullptr || rate.ns <= 0) continue;
        PromptRate& one = out[{prompt->external_id, prompt->turn, prompt->text}];
        one.conversation = {prompt->suite, prompt->external_id};
        one.rate.add(rate);
    }
    return out;
}

std::size_t group_conversations(const Snapshot& snapshot, RowId run_id) {
    std::set<Conversation> out;
    for (const auto& prompt : snapshot.prompts)
        if (prompt->run_id == run_id) out.insert({prompt->suite, prompt->external_id});
    return out.size();
}

struct SpeedupUnit {
    Rate run, plain;
};

Estimate speed_ratio(const std::vector<SpeedupUnit>& units, const SpeedupUnit& whole,
                     const BootstrapOptions& options) {
    return bootstrap_estimate(
        whole.run.per_second() / whole.plain.per_second(), units.size(),
        [&](std::span<const std::uint32_t> drawn) -> std::optional<double> {
            SpeedupUnit sum;
            for (std::size_t i = 0; i < drawn.size(); ++i) {
                sum.run.add(units[i].run, drawn[i]);
                sum.plain.add(units[i].plain, drawn[i]);
            }
            if (sum.plain.per_second() <= 0) return std::nullopt;
            return sum.run.per_second() / sum.plain.per_second();
        },
        options);
}

}  // namespace

std::optional<Speedup> compute_speedup(const Snapshot& snapshot, RowId run_id,
                                       const BootstrapOptions& options) {
    const RunRow* run = snapshot.run(run_id);
    if (run == nullptr || run->drafter == plain_drafter) return std::nullopt;
    const std::string setting = plain_setting(*run);
    std::map<PromptKey, PromptRate> mine, theirs;
    Speedup out;
    for (const RunRow& other : snapshot.runs) {
        if (other.drafter != plain_drafter || plain_setting(other) != setting) continue;
        if (mine.empty()) mine = prompt_rates(snapshot, run_id);
        bool shares = false;
        for (const auto& [key, prompt] : prompt_rates(snapshot, other.id)) {
            if (!mine.contains(key)) continue;
            theirs[key].rate.add(prompt.rate);
            shares = true;
        }
        if (shares) out.plain_runs.push_back(other.id);
    }
    std::map<Conversation, SpeedupUnit> units;
    SpeedupUnit whole;
    for (const auto& [key, plain] : theirs) {
        const PromptRate& own = mine.at(key);
        for (SpeedupUnit* unit : {&whole, &units[own.conversation]}) {
            unit->run.add(own.rate);
            unit->plain.add(plain.rate);
        }
    }
    if (whole.plain.per_second() <= 0) return std::nullopt;
    out.prompts = theirs.size();
    out.conversations = units.size();
    out.conversations_of_run = group_conversations(snapshot, run_id);
    out.tokens_per_second = whole.run.per_second();
    out.plain_tokens_per_second = whole.plain.per_second();
    std::vector<SpeedupUnit> list;
    for (const auto& [conversation, unit] : units) list.push_back(unit);
    out.ratio = speed_ratio(list, whole, options);
    return out;
}

std::optional<double> legacy_baseline(const Snapshot& snapshot, RowId run_id) {
    for (std::size_t i = snapshot.counters.size(); i-- > 0;) {
        const CounterRow& counter = snapshot.counters[i];
        if (counter.run_id == run_id && counter.name == baseline_counter) return counter.value;
    }
    return std::nullopt;
}

}  // namespace draftscope
