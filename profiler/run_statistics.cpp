#include "profiler/run_statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>

#include "capture/quantile.h"

namespace draftscope {

namespace {

constexpr std::size_t block_steps = 25;

/// (suite, external id) name a conversation, whose turns share their text.
using ConversationKey = std::pair<std::string, std::string>;

bool units_by_prompt(const Snapshot& snapshot, const RunSamples& samples, StepUnits& units) {
    std::map<ConversationKey, std::uint32_t> known;
    for (const std::uint32_t index : samples.steps()) {
        const StepEntry& step = snapshot.steps[index];
        std::optional<std::uint32_t> unit;
        for (std::uint32_t r = 0; r < step.rounds.count; ++r) {
            const PromptRow* prompt = snapshot.prompt(snapshot.rounds[step.rounds.first + r].row.prompt_id);
            if (prompt == nullptr) return false;
            // Prompts without an id of their own are told apart by their place.
            const std::string id =
                prompt->external_id.empty() ? std::to_string(prompt->ordinal) : prompt->external_id;
            const auto entry =
                known.emplace(ConversationKey{prompt->suite, id}, static_cast<std::uint32_t>(known.size()))
                    .first;
            if (unit && *unit != entry->second)
                return false;  // a batch: the step is several prompts' at once
            unit = entry->second;
        }
        if (!unit) return false;
        units.of_step.push_back(*unit);
    }
    units.count = known.size();
    units.kind = "prompt";
    return true;
}

double weighted(const std::vector<double>& values, std::span<const std::uint32_t> weight) {
    double sum = 0;
    for (std::size_t i = 0; i < values.size(); ++i) sum += values[i] * weight[i];
    return sum;
}

/// numerator / denominator, both summed over units.
Estimate ratio_estimate(const std::vector<double>& numerator, const std::vector<double>& denominator,
                        const BootstrapOptions& options) {
    double top = 0, bottom = 0;
    for (const double v : numerator) top += v;
    for (const double v : denominator) bottom += v;
    Estimate out;
    out.value = bottom > 0 ? top / bottom : 0;
    out.interval = bootstrap_interval(
        numerator.size(),
        [&](std::span<const std::uint32_t> drawn) -> std::optional<double> {
            const double below = weighted(denominator, drawn);
            if (below <= 0) return std::nullopt;
            return weighted(numerator, drawn) / below;
        },
        options);
    return out;
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

StepUnits step_units(const Snapshot& snapshot, const RunSamples& samples) {
    StepUnits units;
    if (units_by_prompt(snapshot, samples, units) && units.count >= BootstrapOptions{}.least_units)
        return units;
    units = {};
    units.kind = "block of 25 steps";
    // A last block of a few steps joins the one before it.
    units.count = samples.steps().size() / block_steps;
    for (std::size_t i = 0; i < samples.steps().size(); ++i)
        units.of_step.push_back(
            static_cast<std::uint32_t>(std::min(i / block_steps, std::max<std::size_t>(units.count, 1) - 1)));
    return units;
}

std::size_t detect_warmup(const std::vector<TimeNs>& step_ns) {
    constexpr std::size_t batch = 5;
    const std::size_t batches = step_ns.size() / batch;
    if (batches < 20) return 0;
    std::vector<double> means(batches, 0.0);
    for (std::size_t i = 0; i < batches * batch; ++i)
        means[i / batch] += static_cast<double>(step_ns[i]) / static_cast<double>(batch);
    // From the back: variance of the mean of what remains, for every cut.
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
    // The median of a few noisy steps may well be high: three of its standard errors are asked for.
    const double error = 1.2533 * gauss_mad * quantile(after, 0.5) / std::sqrt(static_cast<double>(cut));
    return slower > 1.05 * usual && slower > usual + 3 * error ? cut : 0;
}

RunStatistics run_statistics(const Snapshot& snapshot, RowId run_id, bool cut_warmup,
                             const BootstrapOptions& options) {
    RunSamples samples;
    samples.update(snapshot, run_id);
    RunStatistics out;
    out.resamples = options.resamples;
    out.warmup_found = detect_warmup(samples.step_ns());
    if (cut_warmup && out.warmup_found > 0) {
        out.warmup_cut = out.warmup_found;
        samples.drop_first(out.warmup_cut);
    }
    const StepUnits units = step_units(snapshot, samples);
    out.unit = units.kind;
    out.units = units.count;
    const std::size_t count = std::max<std::size_t>(units.count, 1);

    std::vector<double> unit_ns(count), unit_rounds(count), unit_committed(count), step_ns;
    std::map<std::uint32_t, std::uint32_t> unit_of;  // by step index
    for (std::size_t i = 0; i < samples.steps().size(); ++i) {
        const std::uint32_t unit = units.of_step[i];
        const StepEntry& step = snapshot.steps[samples.steps()[i]];
        unit_of.emplace_hint(unit_of.end(), samples.steps()[i], unit);
        step_ns.push_back(static_cast<double>(samples.step_ns()[i]));
        unit_ns[unit] += step_ns.back();
        unit_rounds[unit] += step.rounds.count;
        for (std::uint32_t r = 0; r < step.rounds.count; ++r)
            unit_committed[unit] += snapshot.rounds[step.rounds.first + r].row.committed;
    }
    out.step_interval = median_interval(step_ns, units.of_step, units.count, options);
    out.step_ns = summarise(step_ns);
    if (samples.total_ns() > 0) {
        out.tau = ratio_estimate(unit_committed, unit_rounds, options);
        std::vector<double> unit_seconds = unit_ns;
        for (double& v : unit_seconds) v *= 1e-9;
        out.tokens_per_second = ratio_estimate(unit_committed, unit_seconds, options);
    }
    for (const PhaseStats& row : samples.stats()) {
        PhaseStatistics phase;
        phase.phase_id = row.phase_id;
        phase.exposed_ns = static_cast<double>(row.exposed_ns);
        phase.share = row.share;
        phase.gb_per_s = row.gb_per_s;
        std::vector<double> busy, unit_exposed(count);
        std::vector<std::uint32_t> of;
        for (const PhaseSample& sample : samples.of(row.phase_id)) {
            busy.push_back(static_cast<double>(sample.busy_ns));
            of.push_back(unit_of.at(sample.step));
            unit_exposed[of.back()] += static_cast<double>(sample.exposed_ns);
        }
        phase.median_interval = median_interval(busy, of, units.count, options);
        phase.share_interval = ratio_estimate(unit_exposed, unit_ns, options).interval;
        phase.ns = summarise(std::move(busy));
        out.phases.push_back(std::move(phase));
    }
    return out;
}

}  // namespace draftscope
