#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>
#include <vector>

#include "capture/queries.h"
#include "capture/run_setting.h"

namespace draftscope {

namespace {

struct Speed {
    std::int64_t committed = 0;
    TimeNs ns = 0;

    void add(std::int64_t tokens, TimeNs time) {
        committed += tokens;
        ns += time;
    }
    double per_second() const { return ns > 0 ? static_cast<double>(committed) / seconds(ns) : 0.0; }
};

/// Adds a round to RunTotals or PromptStats.
template <typename Totals>
void add_round(Totals& of, const RoundRow& round) {
    ++of.rounds;
    of.draft_tokens += std::max(round.draft_tokens, 0);
    of.unknown_drafts += round.draft_tokens < 0 ? 1 : 0;
    of.accepted += round.accepted;
    of.committed += round.committed;
}
template <typename Totals>
void set_tau(Totals& of) {
    if (of.rounds == 0) return;
    of.tau = static_cast<double>(of.committed) / static_cast<double>(of.rounds);
    of.tau_unclipped = 1 + static_cast<double>(of.accepted) / static_cast<double>(of.rounds);
}

}  // namespace

std::string_view losslessness(const RunRow& run) {
    const nlohmann::json config = nlohmann::json::parse(run.config_json, nullptr, false);
    const auto written = config.find(losslessness_key);
    for (const std::string_view known : {"exact", "distribution", "lossy"})
        if (written != config.end() && *written == known) return known;
    if (run.acceptance == imported_acceptance) return "unknown";
    // Captures of older versions have only the rule's name.
    if (run.acceptance != "real") return "lossy";
    // At temperature 0 every rule is greedy exact match.
    if (run.verify == "match" || run.temperature <= 0) return "exact";
    return run.verify == "pq" ? "distribution" : "lossy";
}

RunTotals run_totals(const Snapshot& snapshot, RowId run_id) {
    RunTotals out;
    for (const StepEntry& entry : snapshot.steps) {
        const StepRow& step = entry.row;
        if (step.run_id != run_id) continue;
        ++out.steps;
        out.decode_ns += step.busy_ns();
        if (step.time_counts()) out.counted_ns += step.busy_ns();
        out.excluded_warmup += step.excluded == Excluded::warmup ? 1 : 0;
        out.excluded_paused += step.excluded == Excluded::paused ? 1 : 0;
        out.excluded_shadow += step.excluded == Excluded::shadow ? 1 : 0;
        out.untimed += step.excluded == Excluded::untimed ? 1 : 0;
    }
    for (const RoundEntry& entry : snapshot.rounds) {
        const RoundRow& round = entry.row;
        if (round.run_id != run_id) continue;
        add_round(out, round);
        if (snapshot.steps[entry.step_index].row.time_counts()) out.counted_committed += round.committed;
    }
    for (const auto& prompt : snapshot.prompts) {
        if (prompt->run_id != run_id) continue;
        out.generated += prompt->generated_tokens;
        out.prefill_ns += prompt->prefill_ns;
    }
    set_tau(out);
    if (out.counted_ns > 0)
        out.tokens_per_second = static_cast<double>(out.counted_committed) / seconds(out.counted_ns);
    if (out.tokens_per_second > 0) {
        // Rounds that don't count are assumed to run at the speed of the counted ones, so both speeds use the
        // same steps.
        const double decode_seconds = static_cast<double>(out.committed) / out.tokens_per_second;
        out.tokens_per_second_e2e =
            static_cast<double>(out.generated) / (decode_seconds + seconds(out.prefill_ns));
    } else if (out.decode_ns + out.prefill_ns > 0) {
        out.tokens_per_second_e2e =
            static_cast<double>(out.generated) / seconds(out.decode_ns + out.prefill_ns);
    }
    return out;
}

std::vector<PromptStats> prompt_stats(const Snapshot& snapshot, RowId run_id) {
    std::vector<PromptStats> out;
    std::vector<Speed> counted;
    std::unordered_map<RowId, std::size_t> index;
    for (const auto& prompt : snapshot.prompts) {
        if (prompt->run_id != run_id) continue;
        index.emplace(prompt->id, out.size());
        out.push_back({prompt->id});
        counted.emplace_back();
    }
    for (const RoundEntry& entry : snapshot.rounds) {
        const RoundRow& round = entry.row;
        const auto found = round.run_id == run_id ? index.find(round.prompt_id) : index.end();
        if (found == index.end()) continue;
        PromptStats& of = out[found->second];
        add_round(of, round);
        const StepRow& step = snapshot.steps[entry.step_index].row;
        of.decode_ns += step.busy_ns();
        if (step.time_counts()) counted[found->second].add(round.committed, step.busy_ns());
    }
    for (std::size_t i = 0; i < out.size(); ++i) {
        set_tau(out[i]);
        out[i].tokens_per_second = counted[i].per_second();
    }
    return out;
}

}  // namespace draftscope
