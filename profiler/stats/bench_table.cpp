#include "profiler/stats/bench_table.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace draftscope {
namespace {

/// Sums of one resampling unit under a method and under plain decoding.
struct Pair {
    HeadSample method, plain;
};

double speed(const HeadSample& unit) {
    return unit.step_ns > 0 ? 1e9 * unit.timed_committed / unit.step_ns : 0.0;
}

std::optional<double> ratio(const HeadSample& method, const HeadSample& plain) {
    if (speed(method) <= 0 || speed(plain) <= 0) return std::nullopt;
    return speed(method) / speed(plain);
}

std::optional<double> deviation(const std::vector<double>& values) {
    if (values.size() < 2) return std::nullopt;
    double sum = 0, squares = 0;
    for (const double value : values) sum += value;
    const double mean = sum / static_cast<double>(values.size());
    for (const double value : values) squares += (value - mean) * (value - mean);
    return std::sqrt(squares / static_cast<double>(values.size() - 1));
}

class TableBuilder {
  public:
    TableBuilder(const BenchSamples& samples, const BootstrapOptions& options)
        : samples_(samples), options_(options) {}

    BenchTable run() {
        BenchTable table;
        for (const BenchPrompt& prompt : samples_.prompts)
            if (std::ranges::find(table.categories, prompt.category) == table.categories.end())
                table.categories.push_back(prompt.category);
        for (const BenchMethodSamples& method : samples_.methods) {
            BenchRow row;
            row.all = cell(method, nullptr);
            for (const std::string& category : table.categories)
                row.categories.push_back(cell(method, &category));
            if (method.full) row.cost = cost(method, samples_.methods[*method.full]);
            table.rows.push_back(std::move(row));
        }
        return table;
    }

  private:
    bool belongs_to(std::size_t prompt, const std::string* category) const {
        return category == nullptr || samples_.prompts[prompt].category == *category;
    }
    const BenchMethodSamples* plain() const {
        return samples_.plain ? &samples_.methods[*samples_.plain] : nullptr;
    }
    static HeadSample unit_at(const BenchMethodSamples& method, std::size_t repetition, std::size_t prompt) {
        return repetition < method.units.size() ? method.units[repetition][prompt] : HeadSample();
    }

    BenchCell cell(const BenchMethodSamples& method, const std::string* category) const {
        BenchCell out;
        HeadSample sum, once;
        std::map<std::size_t, Pair> conversations;
        std::vector<double> repetitions;
        double rows = 0;
        for (std::size_t r = 0; r < method.units.size(); ++r) {
            Pair repetition;
            for (std::size_t p = 0; p < samples_.prompts.size(); ++p) {
                if (!belongs_to(p, category)) continue;
                Pair one{unit_at(method, r, p), plain() != nullptr ? unit_at(*plain(), r, p) : HeadSample()};
                sum += one.method;
                if (r == 0 && one.method.rounds > 0) {
                    ++out.prompts;
                    once += one.method;
                    rows += method.active_rows[p];
                }
                // A unit that only one of the two decoded gives no ratio.
                if (one.method.rounds <= 0 || one.plain.rounds <= 0) continue;
                Pair& conversation = conversations[samples_.prompts[p].conversation];
                for (Pair* into : {&conversation, &repetition}) {
                    into->method += one.method;
                    into->plain += one.plain;
                }
            }
            if (const auto one = ratio(repetition.method, repetition.plain)) repetitions.push_back(*one);
        }
        out.tau = sum.rounds > 0 ? sum.committed / sum.rounds : 0.0;
        out.tokens_per_second = speed(sum);
        out.active_rows = once.rounds > 0 ? rows / once.rounds : 0.0;
        out.spread = deviation(repetitions);
        std::vector<Pair> units;
        for (const auto& [conversation, pair] : conversations) units.push_back(pair);
        out.conversations = units.size();
        out.speedup = speedup(units);
        return out;
    }

    std::optional<Estimate> speedup(const std::vector<Pair>& units) const {
        const auto of = [&](auto times) {
            Pair sum;
            for (std::size_t u = 0; u < units.size(); ++u) {
                sum.method.add(units[u].method, times(u));
                sum.plain.add(units[u].plain, times(u));
            }
            return ratio(sum.method, sum.plain);
        };
        const std::optional<double> value = of([](std::size_t) { return 1.0; });
        if (!value) return std::nullopt;
        Estimate out{*value, {}};
        const auto spread = bootstrap_spread(
            *value, units.size(),
            [&](std::span<const std::uint32_t> drawn) { return of([&](std::size_t u) { return drawn[u]; }); },
            options_);
        if (spread) out.interval = spread->interval(*value);
        return out;
    }

    AcceptanceCost cost(const BenchMethodSamples& method, const BenchMethodSamples& full) const {
        std::map<std::size_t, PairedSample> conversations;
        for (std::size_t r = 0; r < method.units.size(); ++r)
            for (std::size_t p = 0; p < samples_.prompts.size(); ++p) {
                const HeadSample one = unit_at(method, r, p), other = unit_at(full, r, p);
                if (one.rounds <= 0 || other.rounds <= 0) continue;
                PairedSample& unit = conversations[samples_.prompts[p].conversation];
                unit.head += one;
                unit.full += other;
                unit.base += other;
                unit.full_run += other;
                unit.head_run += one;
            }
        std::vector<PairedSample> units;
        for (const auto& [conversation, unit] : conversations) units.push_back(unit);
        return acceptance_cost(units, options_);
    }

    const BenchSamples& samples_;
    const BootstrapOptions& options_;
};

}  // namespace

BenchTable bench_table(const BenchSamples& samples, const BootstrapOptions& options) {
    return TableBuilder(samples, options).run();
}

}  // namespace draftscope
