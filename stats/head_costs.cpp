#include "stats/head_costs.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "base/enum_text.h"
#include "base/format_count.h"
#include "capture/conversations.h"
#include "capture/head_traits.h"
#include "capture/run_setting.h"
#include "stats/comparable.h"

namespace draftscope {
namespace {

bool is_sampled(HeadMode mode) {
    return mode == HeadMode::aligned || mode == HeadMode::calibration;
}

/// Identifies a prompt's text across runs.
using PromptKey = std::tuple<std::string_view, int, std::string_view>;
PromptKey make_key(const PromptRow& prompt) {
    return {prompt.external_id, prompt.turn, prompt.text};
}

/// A head's row with the data of its round.
struct Eval {
    const HeadEvalRow* row;
    std::optional<std::size_t> round;  ///< index in the snapshot
    bool timed;
};

HeadSample to_acceptance(const Eval& eval) {
    HeadSample unit;
    unit.rounds = 1;
    unit.committed = eval.row->committed;
    return unit;
}

HeadSample to_sample(const Eval& eval) {
    HeadSample unit = to_acceptance(eval);
    if (!eval.timed) return unit;
    unit.timed_rounds = 1;
    unit.head_ns = static_cast<double>(eval.row->head_ns);
    return unit;
}

/// Rows of a run, read once for all of its heads.
struct RunRows {
    std::map<std::pair<HeadMode, std::string_view>, std::vector<Eval>> heads;
    std::vector<Eval> driving;
    std::map<std::size_t, HeadSample> driven;  ///< acceptance of the driving head by round index
    std::vector<std::size_t> rounds;

    RunRows(const Snapshot& snapshot, RowId run_id) {
        for (const HeadEvalRow& row : snapshot.head_evals) {
            if (row.run_id != run_id) continue;
            const auto round = round_index(snapshot, row.round_id);
            const Eval eval{&row, round, time_counts(snapshot, row.mode, round)};
            heads[{row.mode, row.head}].push_back(eval);
            if (row.mode != HeadMode::drive) continue;
            driving.push_back(eval);
            if (round) driven[*round] += to_acceptance(eval);
        }
        for (std::size_t i = 0; i < snapshot.rounds.size(); ++i)
            if (snapshot.rounds[i].row.run_id == run_id) rounds.push_back(i);
    }
};

FullReference reference_for_mode(HeadMode mode) {
    using enum FullReference;
    return mode == HeadMode::drive       ? drive
           : mode == HeadMode::selfpaced ? selfpaced
           : mode == HeadMode::aligned   ? aligned
                                         : calibration;
}

/// Makes the units of one run.
class PairedSampleBuilder {
  public:
    PairedSampleBuilder(const Snapshot& snapshot, const RunRow& run)
        : snapshot_(snapshot), rows_(snapshot, run.id), conversations_(snapshot, run.id) {
        std::map<PromptKey, std::size_t> prompts;
        for (const std::size_t round : rows_.rounds) {
            const PromptRow* prompt = find_prompt(round);
            if (prompt == nullptr || text_.contains(prompt->id)) continue;
            const auto [found, is_new] = prompts.try_emplace(make_key(*prompt), conversation_of_text_.size());
            if (is_new) conversation_of_text_.push_back(find_conversation(round));
            text_[prompt->id] = found->second;
        }
        for (const RunRow& other : snapshot.runs)
            if (other.id != run.id && is_full_head(other.head) && comparable(run, other))
                read_other_runs(other.id, prompts);
        choose_reference();
    }

    FullReference reference() const { return reference_; }
    /// Returns the number of conversations with rows of the run's full head.
    std::size_t reference_conversations() const {
        std::set<std::int64_t> found;
        if (full_ != nullptr)
            for (const Eval& eval : *full_) found.insert(find_conversation(eval.round));
        return found.size();
    }

    std::vector<PairedSample> units(const HeadStats& head) const {
        std::map<std::int64_t, PairedSample> units;
        const auto at = [&](const Eval& eval) -> PairedSample& {
            return units[find_conversation(eval.round)];
        };
        const std::vector<Eval>& own = rows_.heads.at({head.mode, head.head});
        const std::set<RowId> own_prompts = prompts_of(own);
        for (const Eval& eval : own) {
            at(eval).head += to_sample(eval);
            if (is_sampled(head.mode)) at(eval).drive_at_head += driven_at(eval);
        }
        if (full_ != nullptr)
            for (const Eval& eval : *full_) {
                at(eval).full += to_sample(eval);
                if (!whole_text_reference()) at(eval).drive_at_full += driven_at(eval);
            }
        for (const Eval& eval : rows_.driving) {
            PairedSample& unit = at(eval);
            const RowId prompt = prompt_of(eval);
            if (!is_sampled(head.mode) && own_prompts.contains(prompt))
                unit.drive_at_head += to_acceptance(eval);
            if (whole_text_reference() ? full_prompts_.contains(prompt) : is_in_other_run(eval))
                unit.drive_at_full += to_acceptance(eval);
            if (full_ != nullptr) unit.base.head_ns += to_sample(eval).head_ns;
        }
        for (const std::size_t round : rows_.rounds) {
            PairedSample& unit = units[find_conversation(round)];
            const HeadSample time = counted_time(snapshot_, round);
            if (full_ != nullptr) unit.base += time;
            // Speed is over steps, including rounds without a head call.
            if (head.mode != HeadMode::drive) continue;
            unit.head.step_ns += time.step_ns;
            unit.head.timed_committed += time.timed_committed;
            const OtherRun* other = find_other_run(round);
            if (other != nullptr && other->time.step_ns > 0) unit.head_run += time;
        }
        add_full_runs(head, units);
        std::vector<PairedSample> out;
        out.reserve(units.size());
        for (auto& [key, unit] : units) out.push_back(unit);
        return out;
    }

  private:
    /// The full head in another run that it drove, over a prompt that this run also has.
    struct OtherRun {
        HeadSample full;  ///< acceptance and T_head
        HeadSample time;  ///< rounds and T_head in them
    };

    const PromptRow* find_prompt(std::size_t round) const {
        return snapshot_.prompt(snapshot_.rounds[round].row.prompt_id);
    }

    void read_other_runs(RowId run_id, const std::map<PromptKey, std::size_t>& prompts) {
        const RunRows rows(snapshot_, run_id);
        const auto place = [&](std::size_t round) -> std::optional<std::size_t> {
            const PromptRow* prompt = find_prompt(round);
            const auto found = prompt == nullptr ? prompts.end() : prompts.find(make_key(*prompt));
            if (found == prompts.end()) return std::nullopt;
            return found->second;
        };
        for (const Eval& eval : rows.driving) {
            const auto at = eval.round && is_full_head(eval.row->head) ? place(*eval.round) : std::nullopt;
            if (!at) continue;
            other_runs_[*at].full += to_sample(eval);
            other_runs_[*at].time.head_ns += to_sample(eval).head_ns;
        }
        for (const std::size_t round : rows.rounds)
            if (const auto at = place(round); at && other_runs_.contains(*at))
                other_runs_[*at].time += counted_time(snapshot_, round);
    }

    void choose_reference() {
        if (!other_runs_.empty()) reference_ = FullReference::other_run;
        for (const auto& [key, evals] : rows_.heads) {
            const FullReference own = reference_for_mode(key.first);
            if (!is_full_head(key.second) || (reference_ != FullReference::none && own > reference_))
                continue;
            reference_ = own;
            full_ = &evals;
        }
        if (full_ != nullptr) full_prompts_ = prompts_of(*full_);
    }
    RowId prompt_of(const Eval& eval) const {
        return eval.round ? snapshot_.rounds[*eval.round].row.prompt_id : 0;
    }
    std::set<RowId> prompts_of(const std::vector<Eval>& evals) const {
        std::set<RowId> out;
        for (const Eval& eval : evals) out.insert(prompt_of(eval));
        return out;
    }

    bool whole_text_reference() const {
        return reference_ == FullReference::drive || reference_ == FullReference::selfpaced;
    }
    bool is_in_other_run(const Eval& eval) const {
        return reference_ == FullReference::other_run && eval.round && find_other_run(*eval.round) != nullptr;
    }
    /// Returns the full head's data from other runs for the prompt of a round; null if there is none.
    const OtherRun* find_other_run(std::size_t round) const {
        const auto text = text_.find(snapshot_.rounds[round].row.prompt_id);
        const auto found = text == text_.end() ? other_runs_.end() : other_runs_.find(text->second);
        return found == other_runs_.end() ? nullptr : &found->second;
    }
    HeadSample driven_at(const Eval& eval) const {
        const auto found = eval.round ? rows_.driven.find(*eval.round) : rows_.driven.end();
        return found == rows_.driven.end() ? HeadSample() : found->second;
    }

    /// Returns the conversation of a round. Rows without a round form one extra unit.
    std::int64_t find_conversation(const std::optional<std::size_t>& round) const {
        constexpr std::int64_t no_conversation = -1;
        if (!round) return no_conversation;
        const auto found = conversations_.find(snapshot_.rounds[*round].row.prompt_id);
        return found ? static_cast<std::int64_t>(*found) : no_conversation;
    }

    /// Adds the full head's data from other runs. It is the reference if this run has no better one, and it
    /// gives the measured speed. A full head that drives needs none.
    void add_full_runs(const HeadStats& head, std::map<std::int64_t, PairedSample>& units) const {
        if (head.mode == HeadMode::drive && is_full_head(head.head)) {
            for (auto& [key, unit] : units) unit.full_run = unit.head_run = unit.head;
            return;
        }
        for (const auto& [text, driven_run] : other_runs_) {
            PairedSample& unit = units[conversation_of_text_[text]];
            unit.full_run += driven_run.time;
            if (reference_ != FullReference::other_run) continue;
            unit.full += driven_run.full;
            unit.base += driven_run.time;
        }
    }

    const Snapshot& snapshot_;
    RunRows rows_;
    Conversations conversations_;
    std::unordered_map<RowId, std::size_t> text_;     ///< index of a prompt's text among those of the run
    std::vector<std::int64_t> conversation_of_text_;  ///< conversation in which the text first occurs
    std::map<std::size_t, OtherRun> other_runs_;      ///< by text
    FullReference reference_ = FullReference::none;
    const std::vector<Eval>* full_ = nullptr;  ///< rows of the run's own full reference
    std::set<RowId> full_prompts_;             ///< prompts of these rows
};

/// Returns the run's full head with times and bytes. If several rows exist, the first mode is used: driving,
/// self-paced, aligned.
const HeadStats* full_with_times(const std::vector<HeadComparison>& heads) {
    const HeadStats* best = nullptr;
    for (const HeadComparison& head : heads) {
        if (!is_full_head(head.stats.head) || head.stats.head_ns_per_round <= 0 ||
            head.stats.bytes_per_round <= 0)
            continue;
        if (best == nullptr || head.stats.mode < best->mode) best = &head.stats;
    }
    return best;
}

std::optional<HeadBytes> compare_bytes(const HeadStats& head, const HeadStats& full) {
    if (head.head_ns_per_round <= 0 || head.bytes_per_round <= 0) return std::nullopt;
    HeadBytes out;
    out.per_second = head.bytes_per_round / (head.head_ns_per_round * 1e-9);
    out.explained = head.bytes_per_round / full.bytes_per_round;
    out.constant_ns = head.head_ns_per_round - out.explained * full.head_ns_per_round;
    out.times = head.head_ns_per_round / (out.explained * full.head_ns_per_round);
    return out;
}

/// Returns for each head the bytes that a call streams in addition to its scattered rows. Heads without
/// scattered rows are left out.
std::map<std::string, double> streamed_bytes(const RunRow& run) {
    std::map<std::string, double> out;
    const auto config = nlohmann::json::parse(run.config_json, nullptr, false);
    if (!config.is_object()) return out;
    const auto heads = config.find("head_streamed_bytes");
    if (heads == config.end() || !heads->is_object()) return out;
    for (const auto& [head, bytes] : heads->items())
        if (bytes.is_number()) out[head] = bytes.get<double>();
    return out;
}

HeadTraffic measure_traffic(const RunRow& run, const std::map<std::string, double>& streamed,
                            const HeadStats& stats) {
    HeadTraffic out;
    out.head_ns = stats.head_ns_per_round;
    out.streamed = stats.bytes_per_round;
    out.flops = stats.flops_per_round;
    if (const auto own = streamed.find(stats.head); own != streamed.end()) {
        // Without recorded calls, the number of matrix reads is unknown.
        if (stats.bytes_per_call <= 0) return out;
        const double calls = stats.bytes_per_round / stats.bytes_per_call;
        out.streamed = std::min(out.streamed, own->second * calls);
        out.gathered = stats.bytes_per_round - out.streamed;
    }
    const auto stream = probed_gb_per_s(run), scattered = probed_scattered_gb_per_s(run);
    if (!stream || (out.gathered > 0 && !scattered) || out.head_ns <= 0 || stats.bytes_per_round <= 0)
        return out;
    out.explained_ns = out.streamed / *stream + (out.gathered > 0 ? out.gathered / *scattered : 0.0);
    return out;
}

/// The full head compared with itself is 1 by definition.
void drop_intervals(AcceptanceCost& cost) {
    for (std::optional<Estimate>* one :
         {&cost.rho_tau, &cost.nu, &cost.predicted, &cost.measured, &cost.unexplained})
        if (*one) (*one)->interval.reset();
}

/// Removes what calibration rounds do not tell. They have no tau; `too_few` of them, a reason, give no
/// rho_tau to any head; and they are no figures of a full head that has all rounds of the texts.
void drop_unfounded(HeadComparison& head, const std::string& too_few) {
    AcceptanceCost& cost = head.cost;
    if (head.stats.mode == HeadMode::calibration) cost.tau.reset();
    if (head.stats.mode == HeadMode::calibration && head.reference != FullReference::calibration) {
        cost = {};
        head.reference = FullReference::none;
    }
    if (too_few.empty()) return;
    for (std::optional<Estimate>* one : {&cost.rho_tau, &cost.predicted, &cost.unexplained}) one->reset();
    cost.break_even_nu.reset();
    head.no_interval = too_few;
}

std::string too_few_calibrated(const PairedSampleBuilder& builder) {
    const std::size_t conversations = builder.reference_conversations();
    if (builder.reference() != FullReference::calibration || conversations >= min_conversations) return {};
    return fmt::format(
        "calibration rounds in {} are too few for a ratio (at least {}); decode more prompts, or run with "
        "--shadow full",
        format_count(conversations, "conversation"), min_conversations);
}

std::string no_interval_reason(const HeadComparison& head) {
    if (!head.cost.rho_tau) return {};
    const std::string text = no_interval_text(head.cost.conversations);
    if (text.empty()) return {};
    switch (head.reference) {
        case FullReference::aligned:
            return "aligned rounds in " + text;
        case FullReference::other_run:
            return "both runs have " + text;
        default:
            return text;
    }
}

}  // namespace

HeadSample counted_time(const Snapshot& snapshot, std::size_t round) {
    HeadSample unit;
    const RoundEntry& entry = snapshot.rounds[round];
    const StepEntry& step = snapshot.steps[entry.step_index];
    if (!step.row.time_counts()) return unit;
    unit.timed_rounds = 1;
    unit.timed_committed = entry.row.committed;
    unit.step_ns = static_cast<double>(step.row.busy_ns()) / std::max(1u, step.rounds.count);
    if (step.row.sampled) return unit;
    unit.unsampled_rounds = 1;
    unit.unsampled_ns = unit.step_ns;
    return unit;
}

std::string_view to_text(FullReference reference) {
    constexpr std::string_view texts[] = {"", "drive", "selfpaced", "other run", "aligned", "calibration"};
    return enum_text(texts, reference);
}

HeadTraffic head_traffic(const RunRow& run, const HeadStats& stats) {
    return measure_traffic(run, streamed_bytes(run), stats);
}

std::vector<HeadComparison> head_costs(const Snapshot& snapshot, RowId run_id,
                                       const BootstrapOptions& options) {
    std::vector<HeadComparison> out;
    const RunRow* run = snapshot.run(run_id);
    if (run == nullptr) return out;
    const PairedSampleBuilder builder(snapshot, *run);
    const std::map<std::string, double> streamed = streamed_bytes(*run);
    const bool sampled =
        builder.reference() == FullReference::aligned || builder.reference() == FullReference::calibration;
    const std::string too_few = too_few_calibrated(builder);
    const RunHeadTraits traits(*run);
    for (HeadStats& stats : head_stats(snapshot, run_id)) {
        HeadComparison head;
        head.cost = acceptance_cost(builder.units(stats), options);
        head.reference = builder.reference();
        head.path_candidates = stats.mode != HeadMode::drive && traits.of(stats.head).replay_estimate;
        head.estimate =
            stats.mode == HeadMode::aligned || (sampled && !is_full_head(stats.head)) || head.path_candidates;
        if (is_full_head(stats.head) && reference_for_mode(stats.mode) == head.reference)
            drop_intervals(head.cost);
        head.stats = std::move(stats);
        head.no_interval = no_interval_reason(head);
        drop_unfounded(head, too_few);
        head.reads = measure_traffic(*run, streamed, head.stats);
        out.push_back(std::move(head));
    }
    if (const HeadStats* full = full_with_times(out); full != nullptr)
        for (HeadComparison& head : out) head.bytes = compare_bytes(head.stats, *full);
    return out;
}

std::vector<DrivenPrompt> driven_prompts(const Snapshot& snapshot, RowId run_id) {
    std::vector<DrivenPrompt> out;
    std::map<RowId, std::size_t> places;
    const auto at = [&](std::size_t round) -> DrivenPrompt& {
        const RowId prompt = snapshot.rounds[round].row.prompt_id;
        const auto [found, is_new] = places.try_emplace(prompt, out.size());
        if (is_new) out.push_back({prompt, {}});
        return out[found->second];
    };
    const RunRows rows(snapshot, run_id);
    for (const std::size_t round : rows.rounds) {
        HeadSample& unit = at(round).unit;
        unit.rounds += 1;
        unit.committed += snapshot.rounds[round].row.committed;
        unit.accepted += snapshot.rounds[round].row.accepted;
        unit += counted_time(snapshot, round);
    }
    for (const Eval& eval : rows.driving) {
        if (!eval.round) continue;
        DrivenPrompt& prompt = at(*eval.round);
        prompt.unit.head_ns += to_sample(eval).head_ns;
        prompt.active_rows += eval.row->active_rows;
        prompt.row_tokens += eval.row->row_tokens.value_or(eval.row->active_rows);
    }
    return out;
}

}  // namespace draftscope
