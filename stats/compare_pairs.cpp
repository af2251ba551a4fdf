#include "stats/compare_pairs.h"

#include <map>
#include <string_view>
#include <tuple>
#include <unordered_map>

#include "base/phase.h"

namespace draftscope {

namespace {

std::vector<PromptWork> measure_work(const Snapshot& snapshot, RowId run_id) {
    std::vector<PromptWork> out;
    std::unordered_map<RowId, std::size_t> index;
    for (const auto& prompt : snapshot.prompts) {
        if (prompt->run_id != run_id) continue;
        index.emplace(prompt->id, out.size());
        out.emplace_back().prompt = prompt.get();
    }
    for (const TokenRow& token : snapshot.tokens)
        if (const auto found = index.find(token.prompt_id); found != index.end())
            out[found->second].tokens.push_back(token.token_id);
    for (std::size_t i = 0; i < snapshot.steps.size(); ++i) {
        const StepEntry& step = snapshot.steps[i];
        if (step.row.run_id != run_id || step.rounds.count == 0) continue;
        const bool timed = step.row.time_counts();
        const StepPhases phases = timed ? step_phases(snapshot, i) : StepPhases();
        const VerifyShape shape = verify_shape(snapshot, step);
        const double part = 1.0 / step.rounds.count;
        const double verify_ns = part * static_cast<double>(phases.ns[static_cast<int>(Phase::verify)]);
        for (std::uint32_t r = 0; r < step.rounds.count; ++r) {
            const RoundRow& round = snapshot.rounds[step.rounds.first + r].row;
            const auto found = index.find(round.prompt_id);
            if (found == index.end()) continue;
            PromptWork& work = out[found->second];
            work.rounds += 1;
            work.committed += round.committed;
            if (!timed) {
                work.untimed_rounds += step.row.excluded == Excluded::warmup ? 0 : 1;
                continue;
            }
            work.timed_rounds += 1;
            work.timed_committed += round.committed;
            work.sampled_rounds += step.row.sampled ? 1 : 0;
            work.ns += part * static_cast<double>(phases.step_ns);
            if (verify_ns > 0) add(work.verify, {{shape, {1, verify_ns}}});
            for (std::size_t p = 0; p < work.phase_ns.size(); ++p)
                work.phase_ns[p] += part * static_cast<double>(phases.ns[p]);
        }
    }
    return out;
}

/// Suite, id, and index among the conversations of that name in their run.
using ConversationKey = std::tuple<std::string_view, std::string_view, std::size_t>;
/// A conversation's key with turn and text.
using TurnKey = std::tuple<ConversationKey, int, std::string_view>;

constexpr double PromptWork::*summed_fields[] = {&PromptWork::rounds,
                                                 &PromptWork::committed,
                                                 &PromptWork::timed_rounds,
                                                 &PromptWork::timed_committed,
                                                 &PromptWork::sampled_rounds,
                                                 &PromptWork::untimed_rounds,
                                                 &PromptWork::ns};

/// One prompt in one or more runs.
struct Repeats {
    PromptWork sum;
    double count = 0;

    void take(PromptWork&& work) {
        if (count++ == 0) {
            sum = std::move(work);
            return;
        }
        for (double PromptWork::*const value : summed_fields) sum.*value += work.*value;
        add(sum.verify, work.verify);
        for (std::size_t p = 0; p < work.phase_ns.size(); ++p) sum.phase_ns[p] += work.phase_ns[p];
    }
    PromptWork mean() && {
        for (double PromptWork::*const value : summed_fields) sum.*value /= count;
        for (double& ns : sum.phase_ns) ns /= count;
        for (auto& [shape, time] : sum.verify) time = {time.rounds / count, time.ns / count};
        return std::move(sum);
    }
};

std::map<TurnKey, PromptWork> pooled(const Snapshot& snapshot, std::span<const RowId> runs, bool with_texts) {
    std::map<TurnKey, Repeats> repeats;
    for (const RowId run : runs) {
        std::map<std::tuple<std::string_view, std::string_view, int>, std::size_t> seen;
        for (PromptWork& work : measure_work(snapshot, run)) {
            const PromptRow& prompt = *work.prompt;
            const std::size_t place = seen[{prompt.suite, prompt.external_id, prompt.turn}]++;
            const ConversationKey conversation{prompt.suite, prompt.external_id, place};
            repeats[{conversation, prompt.turn,
                     with_texts ? std::string_view(prompt.text) : std::string_view()}]
                .take(std::move(work));
        }
    }
    std::map<TurnKey, PromptWork> out;
    for (auto& [key, one] : repeats) out.emplace(key, std::move(one).mean());
    return out;
}

bool has_texts(const Snapshot& snapshot, std::span<const RowId> runs) {
    for (const auto& prompt : snapshot.prompts)
        for (const RowId run : runs)
            if (prompt->run_id == run && prompt->text.empty()) return false;
    return true;
}

}  // namespace

PromptPairs pair_prompts(const Snapshot& a, std::span<const RowId> runs_a, const Snapshot& b,
                         std::span<const RowId> runs_b) {
    // Captures without texts are paired by name only.
    const bool with_texts = has_texts(a, runs_a) && has_texts(b, runs_b);
    std::map<TurnKey, PromptWork> of_a = pooled(a, runs_a, with_texts), of_b = pooled(b, runs_b, with_texts);
    PromptPairs out;
    std::map<ConversationKey, std::size_t> units;
    for (auto& [key, work] : of_a) {
        const auto found = of_b.find(key);
        if (found == of_b.end() || work.rounds == 0 || found->second.rounds == 0) continue;
        if (work.timed_rounds == 0 || found->second.timed_rounds == 0)
            for (PromptWork* side : {&work, &found->second}) side->drop_times();
        out.same_tokens += work.tokens == found->second.tokens ? 1 : 0;
        const std::size_t unit = units.emplace(std::get<0>(key), units.size()).first->second;
        out.pairs.push_back({std::move(work), std::move(found->second), unit});
    }
    out.conversations = units.size();
    out.only_a = of_a.size() - out.pairs.size();
    out.only_b = of_b.size() - out.pairs.size();
    return out;
}

}  // namespace draftscope
