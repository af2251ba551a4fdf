#include "profiler/compare.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <tuple>
#include <unordered_map>

#include "base/format_count.h"
#include "capture/phase_names.h"
#include "capture/queries.h"

namespace draftscope {

namespace {

/// What a prompt took in its run: counted steps only, a batch's step shared evenly by its rounds.
struct PromptWork {
    const PromptRow* prompt = nullptr;
    double rounds = 0, committed = 0, ns = 0;
    std::array<double, max_phases> phase_ns{};  ///< exposed
    std::vector<TokenId> tokens;                ///< all that were generated
};

std::vector<PromptWork> work_of(const Snapshot& snapshot, RowId run_id) {
    std::vector<PromptWork> out;
    std::unordered_map<RowId, std::size_t> index;
    for (const auto& prompt : snapshot.prompts) {
        if (prompt->run_id != run_id) continue;
        index.emplace(prompt->id, out.size());
        out.emplace_back().prompt = prompt.get();
    }
    for (std::size_t i = 0; i < snapshot.tokens.size(); ++i) {
        const auto found = index.find(snapshot.tokens[i].prompt_id);
        if (found != index.end()) out[found->second].tokens.push_back(snapshot.tokens[i].token_id);
    }
    for (std::size_t i = 0; i < snapshot.steps.size(); ++i) {
        const StepEntry& step = snapshot.steps[i];
        if (step.row.run_id != run_id || step.row.excluded != Excluded::no || step.rounds.count == 0)
            continue;
        const StepPhases phases = step_phases(snapshot, i);
        const double part = 1.0 / step.rounds.count;
        for (std::uint32_t r = 0; r < step.rounds.count; ++r) {
            const RoundRow& round = snapshot.rounds[step.rounds.first + r].row;
            const auto found = index.find(round.prompt_id);
            if (found == index.end()) continue;
            PromptWork& work = out[found->second];
            work.rounds += 1;
            work.committed += round.committed;
            work.ns += part * static_cast<double>(phases.step_ns);
            for (std::size_t p = 0; p < work.phase_ns.size(); ++p)
                work.phase_ns[p] += part * static_cast<double>(phases.ns[p]);
        }
    }
    return out;
}

struct Pair {
    PromptWork a, b;
    std::size_t unit = 0;  ///< its conversation
};

std::vector<Pair> pair_up(std::vector<PromptWork> a, std::vector<PromptWork> b, Comparison& out) {
    using Key = std::tuple<std::string, std::string, int, std::size_t>;
    const auto keyed = [](std::vector<PromptWork>& work) {
        std::map<Key, PromptWork*> by_key;
        for (PromptWork& one : work) {
            std::size_t occurrence = 0;
            const auto key = [&] {
                return Key{one.prompt->suite, one.prompt->external_id, one.prompt->turn, occurrence};
            };
            while (by_key.contains(key())) ++occurrence;
            by_key.emplace(key(), &one);
        }
        return by_key;
    };
    using ConversationKey = std::tuple<std::string, std::string, std::size_t>;
    std::map<ConversationKey, std::size_t> units;
    const auto by_key = keyed(b);
    std::vector<Pair> pairs;
    for (auto& [key, work] : keyed(a)) {
        const auto found = by_key.find(key);
        if (found == by_key.end()) continue;
        PromptWork& other = *found->second;
        const std::string& text = work->prompt->text;
        // Captures without texts are paired by name alone.
        if (!text.empty() && !other.prompt->text.empty() && text != other.prompt->text) continue;
        if (work->rounds == 0 || other.rounds == 0) continue;
        out.same_tokens += work->tokens == other.tokens ? 1 : 0;
        const ConversationKey conversation{std::get<0>(key), std::get<1>(key), std::get<3>(key)};
        pairs.push_back({*work, other, units.emplace(conversation, units.size()).first->second});
    }
    out.conversations = units.size();
    out.pairs = pairs.size();
    out.only_a = a.size() - pairs.size();
    out.only_b = b.size() - pairs.size();
    return pairs;
}

/// A quantity is a ratio of sums over prompts: what is above and below the line for one prompt.
struct Fraction {
    double above = 0, below = 0;
};
using FractionOf = std::function<Fraction(const PromptWork&)>;

struct Measured {
    ComparedQuantity quantity;
    double p = 1;  ///< two-sided, from the resamples: how often they fall on the other side of no change
};

Measured measure(const std::vector<Pair>& pairs, const FractionOf& of, const BootstrapOptions& options) {
    std::vector<Fraction> a, b;  // by unit
    Fraction sum_a, sum_b;
    const auto add = [](Fraction& sum, const Fraction& one) {
        sum.above += one.above;
        sum.below += one.below;
    };
    for (const Pair& pair : pairs) {
        if (pair.unit >= a.size()) {
            a.resize(pair.unit + 1);
            b.resize(pair.unit + 1);
        }
        const Fraction of_a = of(pair.a), of_b = of(pair.b);
        add(a[pair.unit], of_a);
        add(b[pair.unit], of_b);
        add(sum_a, of_a);
        add(sum_b, of_b);
    }
    Measured out;
    const auto value = [](const Fraction& f) { return f.below > 0 ? f.above / f.below : 0.0; };
    out.quantity.a = value(sum_a);
    out.quantity.b = value(sum_b);
    if (out.quantity.a <= 0) return out;
    out.quantity.ratio.value = out.quantity.b / out.quantity.a;
    std::size_t below_one = 0, above_one = 0;
    out.quantity.ratio.interval = bootstrap_interval(
        a.size(),
        [&](std::span<const std::uint32_t> drawn) -> std::optional<double> {
            Fraction x, y;
            for (std::size_t i = 0; i < drawn.size(); ++i) {
                x = {x.above + drawn[i] * a[i].above, x.below + drawn[i] * a[i].below};
                y = {y.above + drawn[i] * b[i].above, y.below + drawn[i] * b[i].below};
            }
            if (value(x) <= 0) return std::nullopt;
            const double ratio = value(y) / value(x);
            below_one += ratio <= 1 ? 1 : 0;
            above_one += ratio >= 1 ? 1 : 0;
            return ratio;
        },
        options);
    if (out.quantity.ratio.interval)
        out.p = std::min(1.0, 2.0 * (static_cast<double>(std::min(below_one, above_one)) + 1) /
                                  (static_cast<double>(options.resamples) + 1));
    return out;
}

Change change_of(const ComparedQuantity& quantity, bool shown) {
    if (!quantity.ratio.interval) return Change::no_interval;
    if (!shown) return Change::none_shown;
    return (quantity.ratio.value > 1) == quantity.more_is_better ? Change::better : Change::worse;
}

/// Holm's step-down over the phases: many intervals at 95 % would show a change by chance.
std::vector<bool> survives_holm(const std::vector<Measured>& all) {
    std::vector<std::size_t> order(all.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::sort(order.begin(), order.end(), [&](std::size_t x, std::size_t y) { return all[x].p < all[y].p; });
    std::vector<bool> out(all.size(), false);
    for (std::size_t k = 0; k < order.size(); ++k) {
        if (all[order[k]].p > 0.05 / static_cast<double>(order.size() - k)) break;
        out[order[k]] = true;
    }
    return out;
}

ComparedQuantity whole(const std::vector<Pair>& pairs, const char* name, const char* unit,
                       bool more_is_better, const FractionOf& of, const BootstrapOptions& options) {
    ComparedQuantity out = measure(pairs, of, options).quantity;
    out.name = name;
    out.unit = unit;
    out.more_is_better = more_is_better;
    out.change = change_of(out, out.ratio.interval && !out.ratio.interval->holds(1));
    return out;
}

std::vector<ComparedQuantity> compare_phases(const std::vector<Pair>& pairs,
                                             const BootstrapOptions& options) {
    std::vector<Measured> measured;
    std::vector<PhaseRow> order(phase_rows.begin() + 1, phase_rows.end());
    std::stable_sort(order.begin(), order.end(),
                     [](const PhaseRow& x, const PhaseRow& y) { return x.sort < y.sort; });
    for (const PhaseRow& phase : order) {
        Measured one = measure(
            pairs,
            [&](const PromptWork& work) {
                return Fraction{work.phase_ns[static_cast<std::size_t>(phase.id)] * 1e-3, work.rounds};
            },
            options);
        if (one.quantity.a == 0 && one.quantity.b == 0) continue;
        one.quantity.name = phase.name;
        one.quantity.unit = "us per round";
        one.quantity.phase_id = phase.id;
        one.quantity.difference = one.quantity.b - one.quantity.a;
        measured.push_back(std::move(one));
    }
    const std::vector<bool> shown = survives_holm(measured);
    std::vector<ComparedQuantity> out;
    for (std::size_t i = 0; i < measured.size(); ++i) {
        out.push_back(measured[i].quantity);
        out.back().change = change_of(out.back(), shown[i]);
    }
    return out;
}

/// "20 prompts", or "20 turns of 12 prompts".
std::string sample_text(const Comparison& c) {
    if (c.pairs == c.conversations) return format_count(c.pairs, "prompt");
    return format_count(c.pairs, "turn") + " of " + format_count(c.conversations, "prompt");
}

std::string percent(double ratio) {
    return fmt::format("{:.1f} %", std::abs(ratio - 1) * 100);
}

/// What the table shows of tau, in words.
std::string tau_text(const ComparedQuantity& tau) {
    if (std::abs(tau.ratio.value - 1) < 0.0005) return "stays as it is";
    if (tau.change == Change::none_shown) return "shows no change";
    return (tau.ratio.value > 1 ? "rises by " : "falls by ") + percent(tau.ratio.value);
}

/// "12 us more", "3365 us less".
std::string change_text(double us) {
    return fmt::format("{:.0f} us {}", std::abs(us), us < 0 ? "less" : "more");
}

/// "tau falls by 3.1 % (2.72 to 2.64), a round takes 12.0 % less time, most of the change in head".
std::string because(const Comparison& c) {
    const double ratio = c.round_time.ratio.value;
    std::string out =
        fmt::format("tau {} ({:.2f} to {:.2f}), a round takes ", tau_text(c.tau), c.tau.a, c.tau.b);
    out += std::abs(ratio - 1) < 0.0005
               ? "as long"
               : fmt::format("{} {} time", percent(ratio), ratio > 1 ? "more" : "less");
    const double whole = c.round_time.b - c.round_time.a;
    const ComparedQuantity* most = nullptr;
    for (const ComparedQuantity& phase : c.phases)
        if (phase.difference && *phase.difference * whole > 0 &&
            (most == nullptr || std::abs(*phase.difference) > std::abs(*most->difference)))
            most = &phase;
    if (most != nullptr && std::abs(whole) > 0.005 * c.round_time.a)
        out += fmt::format(", most of the change in {} ({}, the whole round {})", most->name,
                           change_text(*most->difference), change_text(whole));
    return out;
}

std::string verdict_of(const Comparison& c) {
    const double ratio = c.speed.ratio.value;
    const char* word = ratio > 1 ? "faster" : "slower";
    if (!c.speed.ratio.interval)
        return fmt::format(
            "On {} B was {} {} than A; too few prompts for an interval, so this shows nothing about "
            "others: {}.",
            sample_text(c), percent(ratio), word, because(c));
    const Interval& range = *c.speed.ratio.interval;
    if (range.holds(1))
        return fmt::format(
            "No difference in speed is shown: B makes {:.3f} times the tokens per second of A, with a 95 % "
            "interval from {:.3f} to {:.3f} over {}; {}.",
            ratio, range.low, range.high, sample_text(c), because(c));
    const double near = ratio > 1 ? range.low : range.high, far = ratio > 1 ? range.high : range.low;
    return fmt::format("B is {} {} than A (95 % interval {} to {}, {}, paired): {}.", percent(ratio), word,
                       percent(near), percent(far), sample_text(c), because(c));
}

void warn(Comparison& c) {
    const std::string forbidden = forbidding_text(c.differences);
    if (c.forced) c.warnings.push_back("FORCED: the runs differ in " + forbidden);
    if (c.a.tier != "T0" || c.b.tier != "T0")
        c.warnings.push_back("times were taken at " + c.a.tier + " / " + c.b.tier +
                             ", which slows what it measures; only T0 speeds are to be reported");
    if (c.a.synthetic || c.b.synthetic)
        c.warnings.push_back("synthetic weights: costs are real, acceptance is not");
    for (const RunRow* run : {&c.a, &c.b})
        if (run->ended != RunEnd::ok)
            c.warnings.push_back(fmt::format(
                "run {} did not come to its end ({})", run == &c.a ? "A" : "B",
                run->ended == RunEnd::live ? std::string_view("unfinished") : to_text(run->ended)));
    if (c.only_a + c.only_b > 0)
        c.warnings.push_back(
            fmt::format("left out: {} prompts of A and {} of B without a counterpart", c.only_a, c.only_b));
    const bool exact = losslessness(c.a) == "exact" && losslessness(c.b) == "exact" && c.a.temperature == 0 &&
                       c.b.temperature == 0;
    if (exact && c.same_tokens < c.pairs)
        c.warnings.push_back(
            fmt::format("{} of {} prompts have other tokens under B: part of the difference is other work "
                        "(precision, kernels "
                        "or length)",
                        c.pairs - c.same_tokens, c.pairs));
    if (c.conversations >= 6 && c.conversations < 10)
        c.warnings.push_back("under 10 prompts: the intervals are narrower than they should be");
}

}  // namespace

Result<Comparison> compare_runs(const Snapshot& a, RowId run_a, const Snapshot& b, RowId run_b,
                                const CompareOptions& options) {
    const RunRow* first = a.run(run_a);
    const RunRow* second = b.run(run_b);
    if (first == nullptr || second == nullptr)
        return bad_input("{}: has no run {}; `draftscope stats` lists its runs",
                         first == nullptr ? a.source : b.source, first == nullptr ? run_a : run_b);
    Comparison out;
    out.a = *first;
    out.b = *second;
    out.differences = run_differences(out.a, out.b);
    const std::string forbidden = forbidding_text(out.differences);
    if (!forbidden.empty() && !options.force)
        return bad_input(
            "the runs can't be compared: they differ in {}; --force compares them all the same and marks the "
            "result",
            forbidden);
    out.forced = !forbidden.empty();
    const std::vector<Pair> pairs = pair_up(work_of(a, run_a), work_of(b, run_b), out);
    if (pairs.empty())
        return bad_input(
            "the runs have no prompt in common (by suite, id, turn and text) with counted rounds in both; "
            "record "
            "both over the same prompt file");
    out.speed = whole(
        pairs, "tokens per second", "tok/s", true,
        [](const PromptWork& w) {
            return Fraction{w.committed * 1e9, w.ns};
        },
        options.bootstrap);
    out.tau = whole(
        pairs, "tau", "", true,
        [](const PromptWork& w) {
            return Fraction{w.committed, w.rounds};
        },
        options.bootstrap);
    out.round_time = whole(
        pairs, "round time", "us", false,
        [](const PromptWork& w) {
            return Fraction{w.ns * 1e-3, w.rounds};
        },
        options.bootstrap);
    out.phases = compare_phases(pairs, options.bootstrap);
    out.verdict = verdict_of(out);
    warn(out);
    return out;
}

}  // namespace draftscope
