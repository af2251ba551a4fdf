#include "stats/run_statistics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <unordered_map>

#include "capture/conversations.h"
#include "capture/quantile.h"

namespace draftscope {
namespace {

/// Conversations of the counted steps. A batch's step belongs to several: one for each round.
struct StepUnits {
    std::size_t count = 0;
    std::unordered_map<std::uint32_t, std::vector<std::uint32_t>>
        units_of_step;  ///< by step index in the snapshot
};

StepUnits find_units(const Snapshot& snapshot, const RunSamples& samples, RowId run_id) {
    const Conversations conversations(snapshot, run_id);
    StepUnits units;
    std::map<std::size_t, std::uint32_t> places;  // conversations without a counted step are left out
    for (const std::uint32_t index : samples.steps()) {
        const StepEntry& step = snapshot.steps[index];
        std::vector<std::uint32_t>& of = units.units_of_step[index];
        for (std::uint32_t r = 0; r < step.rounds.count; ++r) {
            // Rounds without a prompt form one extra unit.
            const std::size_t conversation =
                conversations.find(snapshot.rounds[step.rounds.first + r].row.prompt_id)
                    .value_or(conversations.count());
            of.push_back(
                places.try_emplace(conversation, static_cast<std::uint32_t>(places.size())).first->second);
        }
    }
    units.count = places.size();
    return units;
}

/// Returns the interval of the median of one value per step. A batch's step counts once for each of its
/// rounds.
std::optional<Interval> step_median_interval(std::span<const std::uint32_t> steps,
                                             std::span<const double> values, const StepUnits& units,
                                             const BootstrapOptions& options) {
    std::vector<double> repeated;
    std::vector<std::uint32_t> of;
    for (std::size_t i = 0; i < steps.size(); ++i)
        for (const std::uint32_t unit : units.units_of_step.at(steps[i])) {
            repeated.push_back(values[i]);
            of.push_back(unit);
        }
    return median_interval(repeated, of, units.count, options);
}

/// Divides a step's value evenly among its rounds.
void add_to_units(std::vector<Fraction>& sums, double Fraction::*part,
                  const std::vector<std::uint32_t>& units, double value) {
    for (const std::uint32_t unit : units) sums[unit].*part += value / static_cast<double>(units.size());
}

/// Returns tau over all rounds of the run; absent without any.
std::optional<Estimate> tau_estimate(const Snapshot& snapshot, RowId run_id, BootstrapOptions options) {
    const Conversations conversations(snapshot, run_id);
    std::map<std::size_t, Fraction> by_conversation;  // committed tokens and rounds
    double all = 0;
    for (const RoundEntry& entry : snapshot.rounds) {
        if (entry.row.run_id != run_id) continue;
        by_conversation[conversations.find(entry.row.prompt_id).value_or(conversations.count())].add(
            {static_cast<double>(entry.row.committed), 1});
        all += 1;
    }
    if (all == 0) return std::nullopt;
    std::vector<Fraction> units;
    for (const auto& [conversation, unit] : by_conversation) units.push_back(unit);
    options.resolution = 1 / all;
    return ratio_of_sums(units, options);
}

}  // namespace

Summary summarise(std::vector<double> samples) {
    Summary out;
    out.n = static_cast<std::int64_t>(samples.size());
    if (samples.empty()) return out;
    for (const double v : samples) out.total += v;
    out.mean = out.total / static_cast<double>(samples.size());
    std::sort(samples.begin(), samples.end());
    out.min = samples.front();
    out.max = samples.back();
    out.median = sorted_quantile(samples, 0.5);
    if (samples.size() >= min_samples_for_p90) out.p90 = sorted_quantile(samples, 0.9);
    if (samples.size() >= min_samples_for_p99) out.p99 = sorted_quantile(samples, 0.99);
    for (double& v : samples) v = std::abs(v - out.median);
    out.mad = gauss_mad * quantile(samples, 0.5);
    return out;
}

std::size_t detect_warmup(const std::vector<TimeNs>& step_ns) {
    constexpr std::size_t batch = 5;
    const std::size_t batches = step_ns.size() / batch;
    if (batches < 20) return 0;
    std::vector<double> means(batches, 0.0);
    for (std::size_t i = 0; i < batches * batch; ++i)
        means[i / batch] += static_cast<double>(step_ns[i]) / static_cast<double>(batch);
    // From the back, computes the variance of the mean of the remaining steps for every cut.
    double sum = 0, squares = 0, best = std::numeric_limits<double>::infinity();
    std::size_t cut = 0;
    for (std::size_t left = batches; left-- > 0;) {
        sum += means[left];
        squares += means[left] * means[left];
        const auto n = static_cast<double>(batches - left);
        if (left > batches / 5) continue;
        const double score = (squares - sum * sum / n) / (n * n);
        if (score < best) {
            best = score;
            cut = left * batch;
        }
    }
    if (cut == 0) return 0;
    std::vector<double> before(step_ns.begin(), step_ns.begin() + static_cast<std::ptrdiff_t>(cut));
    std::vector<double> after(step_ns.begin() + static_cast<std::ptrdiff_t>(cut), step_ns.end());
    const double slower = quantile(before, 0.5), usual = quantile(after, 0.5);
    for (double& v : after) v = std::abs(v - usual);
    // The median of a few noisy steps may be high by chance, so it must exceed by three standard errors.
    const double error = 1.2533 * gauss_mad * quantile(after, 0.5) / std::sqrt(static_cast<double>(cut));
    return slower > 1.05 * usual && slower > usual + 3 * error ? cut : 0;
}

RunStatistics run_statistics(const Snapshot& snapshot, RowId run_id, bool cut_warmup,
                             const BootstrapOptions& options) {
    RunSamples samples;
    samples.update(snapshot, run_id);
    RunStatistics out;
    out.warmup_found = detect_warmup(samples.step_ns());
    if (cut_warmup && out.warmup_found > 0) {
        out.warmup_cut = out.warmup_found;
        samples.drop_first(out.warmup_cut);
    }
    const StepUnits units = find_units(snapshot, samples, run_id);
    out.conversations = units.count;
    std::vector<double> step_ns;
    std::vector<Fraction> speeds(units.count);   // tokens and their time
    std::vector<Fraction> sampled(units.count);  // below: time of the sampled steps
    for (std::size_t i = 0; i < samples.steps().size(); ++i) {
        const StepEntry& step = snapshot.steps[samples.steps()[i]];
        const std::vector<std::uint32_t>& of = units.units_of_step.at(samples.steps()[i]);
        step_ns.push_back(static_cast<double>(samples.step_ns()[i]));
        add_to_units(speeds, &Fraction::below, of, step_ns.back());
        if (step.row.sampled) add_to_units(sampled, &Fraction::below, of, step_ns.back());
        for (std::uint32_t r = 0; r < of.size(); ++r)
            speeds[of[r]].above += snapshot.rounds[step.rounds.first + r].row.committed;
    }
    out.step_interval = step_median_interval(samples.steps(), step_ns, units, options);
    out.step_ns = summarise(step_ns);
    out.tau = tau_estimate(snapshot, run_id, options);
    if (out.step_ns.total > 0) {
        for (Fraction& unit : speeds) unit.below *= 1e-9;
        out.tokens_per_second = ratio_of_sums(speeds, options);
    }
    for (const PhaseStats& row : samples.stats()) {
        PhaseStatistics phase;
        phase.phase_id = row.phase_id;
        phase.exposed_ns = static_cast<double>(row.exposed_ns);
        phase.share = row.share;
        phase.gb_per_s = row.gb_per_s;
        std::vector<double> busy;
        std::vector<Fraction> shares = sampled;
        std::vector<std::uint32_t> steps;
        for (const PhaseSample& sample : samples.phase_samples(row.phase_id)) {
            busy.push_back(static_cast<double>(sample.busy_ns));
            steps.push_back(sample.step);
            add_to_units(shares, &Fraction::above, units.units_of_step.at(sample.step),
                         static_cast<double>(sample.exposed_ns));
        }
        phase.median_interval = step_median_interval(steps, busy, units, options);
        phase.share_interval = ratio_of_sums(shares, options).interval;
        if (phase.share_interval) {
            phase.share_interval->low = std::max(phase.share_interval->low, 0.0);
            phase.share_interval->high = std::min(phase.share_interval->high, 1.0);
        }
        phase.ns = summarise(std::move(busy));
        out.phases.push_back(std::move(phase));
    }
    return out;
}

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
        if (round.context_length < 0 || before < 0) continue;  // an imported round without a place
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
