#include "stats/latency.h"

#include <fmt/format.h>

#include <map>
#include <unordered_map>

namespace draftscope {
namespace {

constexpr int first_bin = 64;

double step_ms(const StepRow& step) {
    return static_cast<double>(step.busy_ns()) * 1e-6;
}

/// Returns the lower border of the bin of a number of tokens.
int bin_of(int tokens) {
    int from = 0;
    for (int border = first_bin; border <= tokens; border *= 2) from = border;
    return from;
}

}  // namespace

void LatencySamples::add(const Snapshot& snapshot, RowId run_id) {
    for (const auto& prompt : snapshot.prompts)
        if (prompt->run_id == run_id && prompt->prefill_ns > 0)
            first_token.push_back(static_cast<double>(prompt->prefill_ns) * 1e-6);
    for (const RoundEntry& entry : snapshot.rounds) {
        const StepRow& step = snapshot.steps[entry.step_index].row;
        if (entry.row.run_id != run_id || !step.time_counts()) continue;
        output_gap.push_back(step_ms(step));
        for (int i = 0; i < entry.row.committed; ++i)
            inter_token.push_back(output_gap.back() / entry.row.committed);
    }
}

Latency LatencySamples::summarised() const {
    return {summarise(first_token), summarise(inter_token), summarise(output_gap)};
}

Latency latency(const Snapshot& snapshot, RowId run_id) {
    LatencySamples samples;
    samples.add(snapshot, run_id);
    return samples.summarised();
}

std::vector<PositionBin> speed_by_position(const Snapshot& snapshot, RowId run_id, bool by_context) {
    struct Sum {
        PositionBin bin;
        double counted_committed = 0, counted_ms = 0;
    };
    std::map<int, Sum> sums;
    std::unordered_map<RowId, int> prompt_tokens;
    for (const auto& prompt : snapshot.prompts)
        if (prompt->run_id == run_id) prompt_tokens[prompt->id] = prompt->prompt_tokens;
    for (const RoundEntry& entry : snapshot.rounds) {
        const RoundRow& round = entry.row;
        if (round.run_id != run_id) continue;
        const auto prompt = prompt_tokens.find(round.prompt_id);
        const int before = prompt == prompt_tokens.end() || by_context ? 0 : prompt->second;
        Sum& sum = sums[bin_of(round.context_length - before)];
        ++sum.bin.rounds;
        sum.bin.accepted += round.accepted;
        sum.bin.committed += round.committed;
        const StepEntry& step = snapshot.steps[entry.step_index];
        if (!step.row.time_counts()) continue;
        sum.counted_committed += round.committed;
        sum.counted_ms += step_ms(step.row) / static_cast<double>(step.rounds.count);
    }
    std::vector<PositionBin> out;
    for (auto& [from, sum] : sums) {
        sum.bin.from = from;
        sum.bin.to = from == 0 ? first_bin : 2 * from;
        sum.bin.tau = static_cast<double>(sum.bin.committed) / static_cast<double>(sum.bin.rounds);
        if (sum.counted_ms > 0) sum.bin.tokens_per_second = 1e3 * sum.counted_committed / sum.counted_ms;
        out.push_back(sum.bin);
    }
    return out;
}

std::string to_text(const PositionBin& bin) {
    return fmt::format("{} .. {}", bin.from, bin.to - 1);
}

}  // namespace draftscope
