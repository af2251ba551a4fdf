#include "stats/bench_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "stats/compare.h"

namespace draftscope {
namespace {

/// Acceptance and times of one method over some prompts.
struct Work {
    HeadSample sample;
    double prefill_ns = 0;

    void add(const Work& other, double times = 1) {
        sample.add(other.sample, times);
        prefill_ns += times * other.prefill_ns;
    }
    std::optional<double> tau() const {
        return sample.rounds > 0 ? std::optional(sample.committed / sample.rounds) : std::nullopt;
    }
    std::optional<double> tau_unclipped() const {
        return sample.rounds > 0 ? std::optional(1 + sample.accepted / sample.rounds) : std::nullopt;
    }
    std::optional<double> speed() const {
        if (sample.step_ns <= 0 || sample.timed_committed <= 0) return std::nullopt;
        return 1e9 * sample.timed_committed / sample.step_ns;
    }
    /// Steps that are not counted drop out of the decode time, but not their part of the prefill.
    std::optional<double> end_to_end_speed() const {
        if (!speed()) return std::nullopt;
        return 1e9 / (prefill_ns / sample.committed + sample.step_ns / sample.timed_committed);
    }
};
/// Work of two methods on the same prompts.
struct Pair {
    Work method, base;
    void add(const Pair& other, double times) {
        method.add(other.method, times);
        base.add(other.base, times);
    }
};
using Speed = std::optional<double> (Work::*)() const;

std::optional<double> ratio(const Pair& pair, Speed speed) {
    const auto a = (pair.method.*speed)(), b = (pair.base.*speed)();
    return a && b ? std::optional(*a / *b) : std::nullopt;
}

std::optional<double> mean(std::span<const double> values) {
    if (values.empty()) return std::nullopt;
    return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

std::optional<double> deviation(std::span<const double> values) {
    return values.size() < 2 ? std::nullopt : std::optional(sample_deviation(values));
}

/// Work of a conversation under a method and under the method that it is compared with.
struct BenchUnit {
    std::size_t task = 0;
    Pair pair;
};

/// Returns the mean of the figures of the tasks that have one. With one task it is that of the sums.
template <typename Figure>
std::optional<double> mean_of_tasks(const std::vector<BenchUnit>& units, std::size_t tasks, Figure figure,
                                    std::span<const std::uint32_t> times_drawn) {
    std::vector<Pair> sums(tasks);
    for (std::size_t u = 0; u < units.size(); ++u)
        sums[units[u].task].add(units[u].pair, times_drawn.empty() ? 1 : times_drawn[u]);
    std::vector<double> known;
    for (const Pair& sum : sums)
        if (const std::optional<double> value = figure(sum)) known.push_back(*value);
    return mean(known);
}

class TableBuilder {
  public:
    TableBuilder(const BenchSamples& samples, const BootstrapOptions& options)
        : samples_(samples), options_(options) {}

    BenchTable run() {
        for (const BenchPrompt& prompt : samples_.prompts) {
            category_of_.push_back(place_of(table_.categories, prompt.category));
            task_of_.push_back(place_of(table_.tasks, task_of_category(prompt.category)));
        }
        for (const BenchMethodSamples& method : samples_.methods) {
            BenchRow row;
            row.all = cell(method, nullptr, 0);
            for (std::size_t c = 0; c < table_.categories.size(); ++c)
                row.categories.push_back(cell(method, &category_of_, c));
            for (std::size_t t = 0; t < table_.tasks.size(); ++t)
                row.tasks.push_back(cell(method, &task_of_, t));
            row.macro = macro(method, row.tasks);
            if (method.full) row.cost = cost(method, samples_.methods[*method.full]);
            table_.rows.push_back(std::move(row));
        }
        compare_methods();
        return std::move(table_);
    }

  private:
    static std::size_t place_of(std::vector<std::string>& names, const std::string& name) {
        const auto found = std::ranges::find(names, name);
        const std::size_t place = static_cast<std::size_t>(found - names.begin());
        if (found == names.end()) names.push_back(name);
        return place;
    }
    const BenchMethodSamples* plain() const {
        return samples_.plain ? &samples_.methods[*samples_.plain] : nullptr;
    }
    static Work work_at(const BenchMethodSamples& method, std::size_t repetition, std::size_t prompt) {
        Work work;
        if (repetition < method.units.size()) work.sample = method.units[repetition][prompt];
        if (repetition < method.prefill_ns.size()) work.prefill_ns = method.prefill_ns[repetition][prompt];
        return work;
    }
    /// Calls `use(repetition, prompt)` for the prompts whose group is `group`, or for all without groups.
    template <typename Use>
    void for_each(const BenchMethodSamples& method, const std::vector<std::size_t>* groups, std::size_t group,
                  Use use) const {
        for (std::size_t r = 0; r < method.units.size(); ++r)
            for (std::size_t p = 0; p < samples_.prompts.size(); ++p)
                if (groups == nullptr || (*groups)[p] == group) use(r, p);
    }

    /// Returns the work on prompts that both methods decoded, by conversation.
    std::vector<BenchUnit> common_units(const BenchMethodSamples& method, const BenchMethodSamples* base,
                                        const std::vector<std::size_t>* groups, std::size_t group) const {
        std::map<std::size_t, BenchUnit> conversations;
        if (base == nullptr) return {};
        for_each(method, groups, group, [&](std::size_t r, std::size_t p) {
            const Pair one{work_at(method, r, p), work_at(*base, r, p)};
            if (one.method.sample.rounds <= 0 || one.base.sample.rounds <= 0) return;
            BenchUnit& unit = conversations[samples_.prompts[p].conversation];
            unit.task = task_of_[p];
            unit.pair.add(one, 1);
        });
        std::vector<BenchUnit> units;
        for (const auto& [conversation, unit] : conversations) units.push_back(unit);
        return units;
    }

    /// Returns the mean over tasks of a figure, with its interval by conversation. `tasks` = false treats all
    /// units as one task.
    template <typename Figure>
    std::optional<Estimate> estimate_of(std::vector<BenchUnit> units, Figure figure, bool tasks) const {
        if (!tasks)
            for (BenchUnit& unit : units) unit.task = 0;
        const std::size_t count = tasks ? table_.tasks.size() : 1;
        const auto value = mean_of_tasks(units, count, figure, {});
        if (!value) return std::nullopt;
        return bootstrap_estimate(
            *value, units.size(),
            [&](std::span<const std::uint32_t> drawn) { return mean_of_tasks(units, count, figure, drawn); },
            options_);
    }
    /// Returns estimate_of() the ratio of speeds.
    std::optional<Estimate> estimate(std::vector<BenchUnit> units, Speed speed, bool tasks) const {
        return estimate_of(
            std::move(units), [speed](const Pair& sum) { return ratio(sum, speed); }, tasks);
    }
    /// Returns the mean over tasks of a method's figure relative to the other method's mean.
    std::optional<Estimate> ratio_of_means(const std::vector<BenchUnit>& units,
                                           std::optional<double> (Work::*figure)() const) const {
        const auto value = [&](std::span<const std::uint32_t> drawn) -> std::optional<double> {
            const auto mean_of = [&](Work Pair::*of) {
                return mean_of_tasks(
                    units, table_.tasks.size(), [&](const Pair& sum) { return (sum.*of.*figure)(); }, drawn);
            };
            const auto a = mean_of(&Pair::method), b = mean_of(&Pair::base);
            return a && b ? std::optional(*a / *b) : std::nullopt;
        };
        const auto ratio = value({});
        return ratio ? std::optional(bootstrap_estimate(*ratio, units.size(), value, options_))
                     : std::nullopt;
    }
    static std::optional<double> tau_of(const Pair& sum) { return sum.method.tau(); }
    static std::optional<double> tau_unclipped_of(const Pair& sum) { return sum.method.tau_unclipped(); }

    static constexpr std::array deviations = {&BenchDeviations::tau_sd,
                                              &BenchDeviations::tau_unclipped_sd,
                                              &BenchDeviations::tokens_per_second_sd,
                                              &BenchDeviations::end_to_end_tokens_per_second_sd,
                                              &BenchDeviations::speedup_sd,
                                              &BenchDeviations::end_to_end_speedup_sd};
    /// The figures of one repetition whose deviations these are.
    using Repetition = std::array<std::optional<double>, std::size(deviations)>;
    /// Returns the figures of each repetition over one group of prompts.
    std::vector<Repetition> repetitions(const BenchMethodSamples& method,
                                        const std::vector<std::size_t>* groups, std::size_t group) const {
        std::vector<Work> sums(method.units.size());
        std::vector<Pair> pairs(method.units.size());
        for_each(method, groups, group, [&](std::size_t r, std::size_t p) {
            const Pair one{work_at(method, r, p), plain() != nullptr ? work_at(*plain(), r, p) : Work()};
            sums[r].add(one.method);
            if (one.method.sample.rounds > 0 && one.base.sample.rounds > 0) pairs[r].add(one, 1);
        });
        std::vector<Repetition> out;
        for (std::size_t r = 0; r < sums.size(); ++r)
            out.push_back({sums[r].tau(), sums[r].tau_unclipped(), sums[r].speed(),
                           sums[r].end_to_end_speed(), ratio(pairs[r], &Work::speed),
                           ratio(pairs[r], &Work::end_to_end_speed)});
        return out;
    }
    /// Returns the known values of one figure.
    static std::vector<double> known(const std::vector<Repetition>& repetitions, std::size_t figure) {
        std::vector<double> out;
        for (const Repetition& one : repetitions)
            if (one[figure]) out.push_back(*one[figure]);
        return out;
    }
    static void set_deviations(const std::vector<Repetition>& repetitions, BenchDeviations& out) {
        for (std::size_t f = 0; f < deviations.size(); ++f)
            out.*deviations[f] = deviation(known(repetitions, f));
    }

    BenchCell cell(const BenchMethodSamples& method, const std::vector<std::size_t>* groups,
                   std::size_t group) const {
        BenchCell out;
        Work sum, first;
        double rows = 0, own = 0;
        for_each(method, groups, group, [&](std::size_t r, std::size_t p) {
            const Work one = work_at(method, r, p);
            sum.add(one);
            if (r > 0 || one.sample.rounds <= 0) return;
            ++out.prompts;
            first.add(one);
            rows += method.active_rows[p];
            own += method.row_tokens[p];
        });
        out.tau = sum.tau().value_or(0);
        out.tau_unclipped = sum.tau_unclipped().value_or(0);
        const std::vector<BenchUnit> mine = common_units(method, &method, groups, group);
        if (const auto tau = estimate_of(mine, tau_of, false)) out.tau_interval = tau->interval;
        if (const auto tau = estimate_of(mine, tau_unclipped_of, false))
            out.tau_unclipped_interval = tau->interval;
        out.tokens_per_second = sum.speed().value_or(0);
        out.end_to_end_tokens_per_second = sum.end_to_end_speed().value_or(0);
        set_deviations(repetitions(method, groups, group), out);
        if (first.sample.rounds > 0) {
            out.active_rows = rows / first.sample.rounds;
            out.row_tokens = own / first.sample.rounds;
        }
        const std::vector<BenchUnit> units = common_units(method, plain(), groups, group);
        out.conversations = units.size();
        out.speedup = estimate(units, &Work::speed, false);
        out.end_to_end_speedup = estimate(units, &Work::end_to_end_speed, false);
        return out;
    }

    BenchMacro macro(const BenchMethodSamples& method, const std::vector<BenchCell>& tasks) const {
        BenchMacro out;
        const auto mean_of = [&](double BenchCell::*figure) {
            std::vector<double> known;
            for (const BenchCell& task : tasks)
                if (task.*figure > 0) known.push_back(task.*figure);
            return mean(known);
        };
        out.tau = mean_of(&BenchCell::tau);
        out.tokens_per_second = mean_of(&BenchCell::tokens_per_second);
        out.end_to_end_tokens_per_second = mean_of(&BenchCell::end_to_end_tokens_per_second);
        out.row_tokens = mean_of(&BenchCell::row_tokens);
        out.tau_unclipped = estimate_of(common_units(method, &method, nullptr, 0), tau_unclipped_of, true);
        const std::vector<BenchUnit> units = common_units(method, plain(), nullptr, 0);
        out.speedup = estimate(units, &Work::speed, true);
        out.end_to_end_speedup = estimate(units, &Work::end_to_end_speed, true);
        set_deviations(mean_repetitions(method), out);
        if (!method.full) return out;
        const auto both = common_units(method, &samples_.methods[*method.full], nullptr, 0);
        out.rho_tau = ratio_of_means(both, &Work::tau_unclipped);
        out.speedup_vs_full = ratio_of_means(both, &Work::speed);
        out.end_to_end_speedup_vs_full = ratio_of_means(both, &Work::end_to_end_speed);
        return out;
    }
    /// Means over tasks of each repetition.
    std::vector<Repetition> mean_repetitions(const BenchMethodSamples& method) const {
        std::vector<std::vector<Repetition>> by_repetition(method.units.size());
        for (std::size_t t = 0; t < table_.tasks.size(); ++t) {
            const std::vector<Repetition> task = repetitions(method, &task_of_, t);
            for (std::size_t r = 0; r < task.size(); ++r) by_repetition[r].push_back(task[r]);
        }
        std::vector<Repetition> out(by_repetition.size());
        for (std::size_t r = 0; r < out.size(); ++r)
            for (std::size_t f = 0; f < deviations.size(); ++f) out[r][f] = mean(known(by_repetition[r], f));
        return out;
    }

    AcceptanceCost cost(const BenchMethodSamples& method, const BenchMethodSamples& full) const {
        std::map<std::size_t, PairedSample> conversations;
        for_each(method, nullptr, 0, [&](std::size_t r, std::size_t p) {
            const HeadSample one = work_at(method, r, p).sample, other = work_at(full, r, p).sample;
            if (one.rounds <= 0 || other.rounds <= 0) return;
            PairedSample& unit = conversations[samples_.prompts[p].conversation];
            unit.head += one;
            unit.full += other;
            unit.base += other;
            unit.full_run += other;
            unit.head_run += one;
        });
        std::vector<PairedSample> units;
        for (const auto& [conversation, unit] : conversations) units.push_back(unit);
        return acceptance_cost(units, options_);
    }

    void compare_methods() {
        const auto& methods = samples_.methods;
        const auto speed = [&](std::size_t m) { return table_.rows[m].all.tokens_per_second; };
        for (std::size_t a = 0; a < methods.size(); ++a) {
            if (speed(a) > 0 && (!table_.best || speed(a) > speed(*table_.best))) table_.best = a;
            for (std::size_t b = a + 1; b < methods.size(); ++b)
                if (const auto one =
                        estimate(common_units(methods[b], &methods[a], nullptr, 0), &Work::speed, false))
                    table_.pairs.push_back({a, b, *one});
        }
        if (samples_.control)
            table_.noise_floor =
                estimate(common_units(*samples_.control, &methods[0], nullptr, 0), &Work::speed, false);
    }

    const BenchSamples& samples_;
    const BootstrapOptions& options_;
    BenchTable table_;
    std::vector<std::size_t> category_of_, task_of_;  ///< by prompt
};

}  // namespace

void BenchMethodSamples::resize(std::size_t repetitions, std::size_t prompts) {
    units.assign(repetitions, std::vector<HeadSample>(prompts));
    verify.assign(repetitions, std::vector<VerifyTimes>(prompts));
    prefill_ns.assign(repetitions, std::vector<double>(prompts));
    active_rows.assign(prompts, 0);
    row_tokens.assign(prompts, 0);
}

std::string task_of_category(std::string_view category) {
    static constexpr std::array<std::pair<std::string_view, std::string_view>, 15> tasks = {
        {{"writing", "Conv."},
         {"roleplay", "Conv."},
         {"reasoning", "Conv."},
         {"math", "Conv."},
         {"coding", "Conv."},
         {"extraction", "Conv."},
         {"stem", "Conv."},
         {"humanities", "Conv."},
         {"translation", "MT"},
         {"summarization", "Summ."},
         {"qa", "QA"},
         {"math_reasoning", "Math"},
         {"GSM8K", "Math"},
         {"rag", "RAG"},
         {"HumanEval", "Code"}}};
    for (const auto& [name, task] : tasks)
        if (name == category) return std::string(task);
    return std::string(category);
}

std::optional<bool> BenchPair::differs() const {
    if (!ratio.interval) return std::nullopt;
    return !ratio.interval->contains(1);
}

std::optional<BenchPair> BenchTable::against_best(std::size_t m) const {
    for (const BenchPair& pair : pairs) {
        if (pair.a == best && pair.b == m) return pair;
        if (pair.b != best || pair.a != m) continue;
        BenchPair turned{pair.b, pair.a, {1 / pair.ratio.value, {}}};
        if (pair.ratio.interval)
            turned.ratio.interval = Interval{1 / pair.ratio.interval->high, 1 / pair.ratio.interval->low};
        return turned;
    }
    return std::nullopt;
}

BenchTable bench_table(const BenchSamples& samples, const BootstrapOptions& options) {
    return TableBuilder(samples, options).run();
}

std::string noise_floor_warning(const BenchTable& table) {
    if (!table.noise_floor || !table.noise_floor->interval || table.noise_floor->interval->contains(1))
        return {};
    return fmt::format(
        "the machine drifted or was loaded: the first method against itself, in the same turns, measured "
        "{:.3f} [{:.3f}, {:.3f}]; differences of that size mean nothing here",
        table.noise_floor->value, table.noise_floor->interval->low, table.noise_floor->interval->high);
}

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
