#include "stats/speedup.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <unordered_map>

#include "capture/run_setting.h"
#include "stats/head_costs.h"

namespace draftscope {

namespace {

using PromptKey = std::tuple<std::string_view, int, std::string_view>;
using Conversation = std::pair<std::string_view, std::string_view>;

double per_second(const HeadSample& sum) {
    return sum.step_ns > 0 ? 1e9 * sum.timed_committed / sum.step_ns : 0.0;
}

struct PromptRate {
    HeadSample rate;
    Conversation conversation;
};

/// Returns a run's prompts with counted time. A prompt that the run decoded twice is one entry.
std::map<PromptKey, PromptRate> prompt_rates(const Snapshot& snapshot, RowId run_id) {
    std::map<PromptKey, PromptRate> out;
    std::unordered_map<RowId, HeadSample> by_prompt;
    for (std::size_t i = 0; i < snapshot.rounds.size(); ++i)
        if (const RoundRow& round = snapshot.rounds[i].row; round.run_id == run_id)
            by_prompt[round.prompt_id] += counted_time(snapshot, i);
    for (const auto& [id, rate] : by_prompt) {
        const PromptRow* prompt = snapshot.prompt(id);
        if (prompt == nullptr || rate.step_ns <= 0) continue;
        PromptRate& one = out[{prompt->external_id, prompt->turn, prompt->text}];
        one.conversation = {prompt->suite, prompt->external_id};
        one.rate += rate;
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
    HeadSample run, plain;
    void add(const SpeedupUnit& other, double times) {
        run.add(other.run, times);
        plain.add(other.plain, times);
    }
    std::optional<double> ratio() const {
        if (per_second(plain) <= 0) return std::nullopt;
        return per_second(run) / per_second(plain);
    }
};

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
            theirs[key].rate += prompt.rate;
            shares = true;
        }
        if (shares) out.plain_runs.push_back(other.id);
    }
    std::map<Conversation, SpeedupUnit> units;
    SpeedupUnit whole;
    for (const auto& [key, plain] : theirs) {
        const PromptRate& own = mine.at(key);
        for (SpeedupUnit* unit : {&whole, &units[own.conversation]}) unit->add({own.rate, plain.rate}, 1);
    }
    if (!whole.ratio()) return std::nullopt;
    out.prompts = theirs.size();
    out.conversations = units.size();
    out.conversations_of_run = group_conversations(snapshot, run_id);
    out.tokens_per_second = per_second(whole.run);
    out.plain_tokens_per_second = per_second(whole.plain);
    std::vector<SpeedupUnit> list;
    for (const auto& [conversation, unit] : units) list.push_back(unit);
    out.ratio = bootstrap_estimate(*whole.ratio(), list.size(),
                                   of_drawn_sum(list, [](const SpeedupUnit& drawn) { return drawn.ratio(); }),
                                   options);
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
