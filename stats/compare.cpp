#include "stats/compare.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>

#include "base/enum_text.h"
#include "base/format_count.h"
#include "base/phase_names.h"
#include "base/tier_text.h"
#include "capture/queries.h"
#include "capture/run_setting.h"
#include "stats/compare_pairs.h"

namespace draftscope {
namespace {

/// Returns the part of one prompt in a ratio of sums.
using FractionOf = std::function<Fraction(const PromptWork&)>;

struct Measured {
    ComparedQuantity quantity;
    double p = 1;  ///< two-sided p-value of the null hypothesis that nothing changed
};

/// A ratio on both sides.
struct FractionPair {
    Fraction a, b;
    void add(const FractionPair& other, double times = 1) {
        a.add(other.a, times);
        b.add(other.b, times);
    }
};

/// Returns the unit's sum, which may be a new one.
template <typename Unit>
Unit& unit_at(std::vector<Unit>& units, std::size_t unit) {
    units.resize(std::max(units.size(), unit + 1));
    return units[unit];
}

Measured measure(const std::vector<PromptPair>& pairs, const FractionOf& of,
                 const BootstrapOptions& options) {
    std::vector<FractionPair> units;
    FractionPair sum;
    for (const PromptPair& pair : pairs) {
        const FractionPair one{of(pair.a), of(pair.b)};
        unit_at(units, pair.unit).add(one);
        sum.add(one);
    }
    Measured out;
    out.quantity.a = sum.a.value().value_or(0);
    out.quantity.b = sum.b.value().value_or(0);
    if (out.quantity.a <= 0) return out;
    out.quantity.ratio.value = out.quantity.b / out.quantity.a;
    const auto spread = bootstrap_spread(out.quantity.ratio.value, units.size(),
                                         of_drawn_sum(units,
                                                      [](const FractionPair& drawn) -> std::optional<double> {
                                                          const double a = drawn.a.value().value_or(0);
                                                          if (a <= 0) return std::nullopt;
                                                          return drawn.b.value().value_or(0) / a;
                                                      }),
                                         options);
    if (!spread) return out;
    out.quantity.ratio.interval = spread->interval(out.quantity.ratio.value);
    out.p = spread->p_value(out.quantity.ratio.value, 1);
    return out;
}

Change classify_change(const ComparedQuantity& quantity, bool shown) {
    if (!quantity.ratio.interval) return Change::no_interval;
    if (!shown) return Change::none_shown;
    return (quantity.ratio.value > 1) == quantity.more_is_better ? Change::better : Change::worse;
}

/// Holm's step-down procedure over the phases. Without it, many 95 % intervals would show a change by chance.
std::vector<bool> significant_after_holm(const std::vector<Measured>& all) {
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

ComparedQuantity whole(const std::vector<PromptPair>& pairs, const char* name, const char* unit,
                       bool more_is_better, const FractionOf& of, const BootstrapOptions& options) {
    ComparedQuantity out = measure(pairs, of, options).quantity;
    out.name = name;
    out.unit = unit;
    out.more_is_better = more_is_better;
    out.change = classify_change(out, out.ratio.interval && !out.ratio.interval->contains(1));
    return out;
}

std::vector<ComparedQuantity> compare_phases(const std::vector<PromptPair>& pairs,
                                             const BootstrapOptions& options) {
    std::vector<Measured> measured;
    for (const PhaseRow& phase : std::span(phase_rows).subspan(1)) {
        Measured one = measure(
            pairs,
            [&](const PromptWork& work) {
                return Fraction{work.phase_ns[phase.id] * 1e-3, work.sampled_rounds};
            },
            options);
        if (one.quantity.a == 0 && one.quantity.b == 0) continue;
        one.quantity.name = phase.name;
        one.quantity.unit = "us per round";
        one.quantity.phase_id = phase.id;
        one.quantity.difference = one.quantity.b - one.quantity.a;
        measured.push_back(std::move(one));
    }
    const std::vector<bool> shown = significant_after_holm(measured);
    std::vector<ComparedQuantity> out;
    for (std::size_t i = 0; i < measured.size(); ++i) {
        out.push_back(measured[i].quantity);
        out.back().change = classify_change(out.back(), shown[i]);
    }
    return out;
}

/// Whether verification can serve as the control: target, work and threads are the same.
bool verify_is_control(const std::vector<RunDifference>& differences) {
    static const std::set<std::string_view> harmless = {"CPU",  "cores",   "instruction set",
                                                        "GPU",  "drafter", "contents of the drafter's files",
                                                        "head", "tree",    "seed"};
    return std::ranges::all_of(differences,
                               [&](const RunDifference& one) { return harmless.contains(one.what); });
}

/// Sets the machine control and the speed ratio adjusted for it.
void check_machine(const std::vector<PromptPair>& pairs, Comparison& out, const BootstrapOptions& options) {
    if (!verify_is_control(out.differences)) return;
    std::vector<VerifyPair> verify;
    struct Unit {
        FractionPair speed;
        Fraction control;
        void add(const Unit& other, double times) {
            speed.add(other.speed, times);
            control.add(other.control, times);
        }
    };
    std::vector<Unit> units;
    for (const PromptPair& pair : pairs) {
        add(unit_at(verify, pair.unit).a, pair.a.verify);
        add(unit_at(verify, pair.unit).b, pair.b.verify);
        unit_at(units, pair.unit)
            .speed.add({{pair.a.timed_committed, pair.a.ns}, {pair.b.timed_committed, pair.b.ns}});
    }
    out.machine = machine_control(verify, options);
    if (!out.machine) return;
    for (std::size_t u = 0; u < units.size(); ++u) {
        const MatchedTime time = matched(verify[u]);
        units[u].control = {time.b_ns, time.a_ns};
    }
    const auto adjusted = of_drawn_sum(units, [](const Unit& sum) -> std::optional<double> {
        const auto a = sum.speed.a.value(), b = sum.speed.b.value(), control = sum.control.value();
        return a && *a > 0 && b && control ? std::optional(*b / *a * *control) : std::nullopt;
    });
    const auto value = adjusted(std::vector<std::uint32_t>(units.size(), 1));
    if (value) out.adjusted_speed = bootstrap_estimate(*value, units.size(), adjusted, options);
}

/// Formats "20 conversations", or "20 turns of 12 conversations".
std::string sample_text(const Comparison& c) {
    const std::string of = format_count(c.conversations, "conversation");
    return c.pairs == c.conversations ? of : format_count(c.pairs, "turn") + " of " + of;
}

/// Describes the change of tau.
std::string tau_text(const ComparedQuantity& tau) {
    if (std::abs(tau.ratio.value - 1) < 0.0005) return "stays the same";
    if (tau.change == Change::none_shown) return "shows no change";
    return (tau.ratio.value > 1 ? "rises by " : "falls by ") + change_percent(tau.ratio.value);
}

/// Formats "12 us more" or "3365 us less".
std::string change_text(double us) {
    return fmt::format("{:.0f} us {}", std::abs(us), us < 0 ? "less" : "more");
}

/// Formats "tau falls by 3.1 % (2.72 to 2.64), a round takes 12.0 % less time, most of the change in head".
std::string explain_change(const Comparison& c) {
    const double ratio = c.round_time.ratio.value;
    std::string out =
        fmt::format("tau {} ({:.2f} to {:.2f}), a round takes ", tau_text(c.tau), c.tau.a, c.tau.b);
    out += std::abs(ratio - 1) < 0.0005
               ? "the same time"
               : fmt::format("{} {} time", change_percent(ratio), ratio > 1 ? "more" : "less");
    const double whole = c.round_time.b - c.round_time.a;
    const ComparedQuantity* largest = nullptr;
    for (const ComparedQuantity& phase : c.phases)
        if (phase.difference && *phase.difference * whole > 0 &&
            (largest == nullptr || std::abs(*phase.difference) > std::abs(*largest->difference)))
            largest = &phase;
    if (largest != nullptr && std::abs(whole) > 0.005 * c.round_time.a)
        out += fmt::format(", most of the change in {} ({}, the whole round {})", largest->name,
                           change_text(*largest->difference), change_text(whole));
    return out;
}

/// Formats the speed ratio adjusted for the machine, of runs without a difference of the machine.
std::string adjusted_text(const Comparison& c) {
    if (!c.adjusted_speed || !c.adjusted_speed->interval || c.machine->differs.value_or(false)) return {};
    const Estimate& speed = *c.adjusted_speed;
    return fmt::format(
        " Relative to verification of equal trees, which both did alike, B makes {:.3f} times A's speed "
        "({:.3f} "
        "to {:.3f}).",
        speed.value, speed.interval->low, speed.interval->high);
}

std::string describe_result(const Comparison& c) {
    const double ratio = c.speed.ratio.value;
    const char* word = ratio > 1 ? "faster" : "slower";
    if (!c.speed.ratio.interval)
        return fmt::format("On {}, B was {} {} than A, which shows nothing about other prompts ({}): {}.",
                           sample_text(c), change_percent(ratio), word, no_interval_text(c.conversations),
                           explain_change(c));
    const Interval& range = *c.speed.ratio.interval;
    if (range.contains(1))
        return fmt::format(
            "No difference in speed is shown: B makes {:.3f} times the tokens per second of A, with a 95 % "
            "interval from {:.3f} to {:.3f} over {}; {}.{}",
            ratio, range.low, range.high, sample_text(c), explain_change(c), adjusted_text(c));
    const double near = ratio > 1 ? range.low : range.high, far = ratio > 1 ? range.high : range.low;
    return fmt::format("B is {} {} than A (95 % interval {} to {}, {}, paired): {}.{}", change_percent(ratio),
                       word, change_percent(near), change_percent(far), sample_text(c), explain_change(c),
                       adjusted_text(c));
}

/// Describes the result of runs whose times are not known.
std::string describe_acceptance(const Comparison& c) {
    const auto& range = c.tau.ratio.interval;
    return fmt::format(
        "On {}, tau {} ({:.2f} to {:.2f}{}). No times are known, so nothing is said about speed.",
        sample_text(c), tau_text(c.tau), c.tau.a, c.tau.b,
        range ? fmt::format(", ratio {:.3f} to {:.3f}", range->low, range->high)
              : "; " + no_interval_text(c.conversations));
}

/// Describes the machine's effect on the comparison; "" if verification shows none.
std::string machine_verdict(const Comparison& c) {
    if (!c.machine || !c.machine->differs.value_or(false)) return {};
    const Estimate& control = c.machine->ratio;
    const bool slower = control.value > 1;
    const bool equal =
        c.adjusted_speed && c.adjusted_speed->interval && c.adjusted_speed->interval->contains(1);
    std::string out = equal ? "No difference in speed beyond the machine's is shown. " : "";
    out += fmt::format(
        "The machine was {} while B ran, so this does not compare the heads: verification of equal trees, "
        "which does not depend on the head, took {} {} time per round (95 % interval {} to {}).",
        slower ? "slower" : "faster", change_percent(control.value), slower ? "more" : "less",
        change_percent(slower ? control.interval->low : control.interval->high),
        change_percent(slower ? control.interval->high : control.interval->low));
    if (c.adjusted_speed && c.adjusted_speed->interval) {
        const Estimate& speed = *c.adjusted_speed;
        out += fmt::format(
            " If it slowed everything equally, B would make {:.3f} times the tokens per second of A (95 % "
            "interval {:.3f} to {:.3f}).",
            speed.value, speed.interval->low, speed.interval->high);
    }
    return out + " Record both in turns on an idle machine, or use bench, which does so. As measured: ";
}

void warn(Comparison& c) {
    const std::string forbidden = forbidding_text(c.differences);
    if (c.forced) c.warnings.push_back("FORCED: the runs differ in " + forbidden);
    if (const std::string further = allowed_difference_text(c.differences); !further.empty())
        c.warnings.push_back("the runs also differ in " + further +
                             "; the result shows their combined effect");
    const bool imported = c.a.acceptance == imported_acceptance && c.b.acceptance == imported_acceptance;
    if (!imported && (c.a.tier != "T0" || c.b.tier != "T0"))
        c.warnings.push_back("times were measured at " + tier_text(c.a.tier) + " / " + tier_text(c.b.tier) +
                             ", which slows the run; report only speeds of tier 0");
    if (c.a.synthetic || c.b.synthetic)
        c.warnings.push_back("synthetic weights: costs are real, acceptance is not");
    for (const RunRow* run : {&c.a, &c.b})
        if (run->ended != RunEnd::ok)
            c.warnings.push_back(fmt::format(
                "run {} did not finish ({})", run == &c.a ? "A" : "B",
                run->ended == RunEnd::live ? std::string_view("unfinished") : to_text(run->ended)));
    if (c.only_a + c.only_b > 0)
        c.warnings.push_back(fmt::format(
            "left out for lack of a counterpart: {} of A's prompts and {} of B's", c.only_a, c.only_b));
    if (c.machine && !c.machine->differs && c.machine->is_large())
        c.warnings.push_back(fmt::format(
            "verification of equal trees, which does not depend on the head, took {} {} time per round under "
            "B: the machine may have differed, but there are too few conversations to tell",
            change_percent(c.machine->ratio.value), c.machine->ratio.value > 1 ? "more" : "less"));
    const bool exact = losslessness(c.a) == "exact" && losslessness(c.b) == "exact" && c.a.temperature == 0 &&
                       c.b.temperature == 0;
    if (exact && c.same_tokens < c.pairs)
        c.warnings.push_back(
            fmt::format("{} of {} prompts have different tokens under B: part of the difference is different "
                        "work (precision, kernels or length)",
                        c.pairs - c.same_tokens, c.pairs));
}

/// Checks that the runs of one side exist and repeat one setting.
Status check_side(const Snapshot& snapshot, std::span<const RowId> runs) {
    const RunRow* first = nullptr;
    for (const RowId id : runs) {
        const RunRow* run = snapshot.run(id);
        if (run == nullptr)
            return bad_input("{}: has no run {}; draftscope stats lists its runs", snapshot.source, id);
        if (first == nullptr) first = run;
        if (repeat_setting(*run) != repeat_setting(*first))
            return bad_input(
                "{}: runs {} and {} do not repeat one setting and can't be pooled; they differ in {}",
                snapshot.source, first->id, id, difference_text(run_differences(*first, *run)));
    }
    return first != nullptr ? Status() : bad_input("{}: no run to compare", snapshot.source);
}

}  // namespace

Result<Comparison> compare_runs(const Snapshot& a, const std::vector<RowId>& runs_a, const Snapshot& b,
                                const std::vector<RowId>& runs_b, const CompareOptions& options) {
    DS_TRY(check_side(a, runs_a));
    DS_TRY(check_side(b, runs_b));
    Comparison out;
    out.a = *a.run(runs_a.front());
    out.b = *b.run(runs_b.front());
    out.runs_a = runs_a;
    out.runs_b = runs_b;
    out.differences = run_differences(out.a, out.b);
    const std::string forbidden = forbidding_text(out.differences);
    if (!forbidden.empty() && !options.force)
        return bad_input("the runs can't be compared: they differ in {}{}", forbidden, options.how_to_force);
    out.forced = !forbidden.empty();
    // Several seeds of one side repeat its setting.
    if (runs_a.size() + runs_b.size() > 2)
        std::erase_if(out.differences, [](const RunDifference& one) { return one.what == "seed"; });
    PromptPairs found = pair_prompts(a, runs_a, b, runs_b);
    const std::vector<PromptPair>& pairs = found.pairs;
    out.pairs = pairs.size();
    out.conversations = found.conversations;
    out.only_a = found.only_a;
    out.only_b = found.only_b;
    out.same_tokens = found.same_tokens;
    out.has_times =
        std::ranges::any_of(pairs, [](const PromptPair& pair) { return pair.a.timed_rounds > 0; });
    // Imported runs are compared by acceptance alone if a side has no times.
    if (!out.has_times &&
        (pairs.empty() || out.a.acceptance != imported_acceptance || out.b.acceptance != imported_acceptance))
        return bad_input(
            "the runs have no prompt in common (by suite, id, turn and text) with counted rounds in both; "
            "record both over the same prompt file, with enough tokens that rounds remain after warm-up "
            "(--max-new)");
    out.speed = whole(
        pairs, "tokens per second", "tok/s", true,
        [](const PromptWork& w) {
            return Fraction{w.timed_committed * 1e9, w.ns};
        },
        options.bootstrap);
    double rounds_a = 0, rounds_b = 0, untimed_a = 0, untimed_b = 0;
    for (const PromptPair& pair : pairs) {
        rounds_a += pair.a.rounds;
        rounds_b += pair.b.rounds;
        untimed_a += pair.a.untimed_rounds;
        untimed_b += pair.b.untimed_rounds;
    }
    if (untimed_a != untimed_b && out.has_times)
        out.warnings.push_back(fmt::format(
            "the times of {:.0f} of A's rounds and {:.0f} of B's do not count (paused, or timed with "
            "a second draft): the speeds are over different parts of the texts",
            untimed_a, untimed_b));
    BootstrapOptions in_rounds = options.bootstrap;
    in_rounds.resolution = 1 / std::min(rounds_a, rounds_b);
    out.tau = whole(
        pairs, "tau", "tokens per round", true,
        [](const PromptWork& w) {
            return Fraction{w.committed, w.rounds};
        },
        in_rounds);
    out.round_time = whole(
        pairs, "round time", "us", false,
        [](const PromptWork& w) {
            return Fraction{w.ns * 1e-3, w.timed_rounds};
        },
        options.bootstrap);
    out.phases = compare_phases(pairs, options.bootstrap);
    check_machine(pairs, out, options.bootstrap);
    out.verdict = out.has_times ? machine_verdict(out) + describe_result(out) : describe_acceptance(out);
    warn(out);
    return out;
}

std::string_view to_text(Change change) {
    constexpr std::string_view texts[] = {"better", "worse", "no change shown", "too few conversations"};
    return enum_text(texts, change);
}

std::string change_percent(double ratio) {
    return fmt::format("{:.1f} %", std::abs(ratio - 1) * 100);
}

std::string change_text(const ComparedQuantity& q) {
    const bool one_sided = q.phase_id != 0 && (q.a > 0) != (q.b > 0);
    return one_sided ? fmt::format("only in {}", q.a > 0 ? 'A' : 'B') : std::string(to_text(q.change));
}

std::array<std::string, 6> compare_cells(const ComparedQuantity& q) {
    const int digits = q.name == "tau" ? 3 : 1;
    const std::string range =
        q.ratio.interval ? fmt::format("{:.3f} .. {:.3f}", q.ratio.interval->low, q.ratio.interval->high)
                         : std::string("-");
    const bool known = q.a > 0 || q.b > 0;
    return {q.unit.empty() ? q.name : q.name + ", " + q.unit,
            known ? fmt::format("{:.{}f}", q.a, digits) : "-",
            known ? fmt::format("{:.{}f}", q.b, digits) : "-",
            q.a > 0 ? fmt::format("{:.3f}", q.ratio.value) : std::string("-"),
            range,
            known ? change_text(q) : "not known"};
}

std::string compare_side(char letter, const RunRow& run, const std::vector<RowId>& runs) {
    const std::string which = runs.size() > 1 ? fmt::format("runs {}, pooled", fmt::join(runs, ", "))
                                              : fmt::format("run {}", run.id);
    if (run.acceptance == imported_acceptance)
        return fmt::format("{}  {}  IMPORTED from {}  target {}  drafter {}  tree {}", letter, which,
                           run.name, or_unknown(run.target), or_unknown(run.drafter), or_unknown(run.tree));
    return fmt::format("{}  {}  drafter {}  head {}  tree {}  {}  {}  {}{}{}", letter, which, run.drafter,
                       run.head.empty() ? "-" : run.head, run.tree, run.precision,
                       format_count(run.threads, "thread"), tier_text(run.tier),
                       run.synthetic ? "  synthetic weights" : "",
                       run.acceptance != "real" ? "  ACCEPTANCE REPLAYED" : "");
}

std::string compare_footer(const Comparison& c) {
    return fmt::format(
        "{} of {}, paired; tau over all rounds, times over counted steps; ratios of sums; {}; phases by "
        "exposed time, their changes after Holm's correction",
        format_count(c.pairs, "turn"), format_count(c.conversations, "conversation"),
        interval_text(c.conversations));
}

}  // namespace draftscope
