#include <algorithm>
#include <map>
#include <set>

#include "app/jobs/sweep/sweep_job.h"
#include "base/parse.h"
#include "capture/head_traits.h"
#include "engine/draft/registry.h"

namespace draftscope {
namespace {

/// What serving stacks call a drafter; "" = unknown. One that SGLang lacks has no model.
struct ServingName {
    std::string_view drafter, vllm, sglang;
};
constexpr ServingName serving_names[] = {{"eagle3", "eagle3", "EAGLE3"},
                                         {"eagle2", "eagle", "EAGLE"},
                                         {"ngram", "ngram", ""},
                                         {"draft-model", "", "STANDALONE"}};

std::string times(const Estimate& estimate) {
    if (!estimate.interval) return fmt::format("{:.2f}x", estimate.value);
    return fmt::format("{:.2f}x [{:.2f}, {:.2f}]", estimate.value, estimate.interval->low,
                       estimate.interval->high);
}

std::string as_sentence(std::string text) {
    if (!text.empty() && text[0] >= 'a' && text[0] <= 'z') text[0] = static_cast<char>(text[0] - 'a' + 'A');
    return text + ".";
}

double tau_of(const SweepSetting& setting) {
    return setting.total().tau().value_or(0);
}

/// Returns why the choice wins: what its head keeps and saves, or its tree alone.
std::string reason(const SweepSetting& setting, const std::vector<SweepSetting>& all) {
    std::string text = fmt::format(
        "it commits {:.2f} tokens in a round of {:.2f} ms, where plain decoding takes {:.2f} ms a token",
        tau_of(setting), setting.round_ms, setting.plain_ms);
    if (!setting.full || is_full_head(setting.head)) return text;
    const SweepSetting& full = all[*setting.full];
    return text + fmt::format(
                      "; its head keeps {:.1f} % of the full head's tau and makes the round {:.1f} % shorter",
                      100 * tau_of(setting) / tau_of(full), 100 * (1 - setting.round_ms / full.round_ms));
}

/// Writes what would change a choice, a sentence each.
class Changes {
  public:
    Changes(const SweepReport& report, const SettingChoice& choice)
        : report_(report), chosen_(report.settings[*choice.chosen]), choice_(choice) {}

    std::vector<std::string> run() {
        add_time();
        add_kappa();
        add_batches();
        add_tau();
        add_categories();
        if (report_.profile.kind != ProfileKind::measured)
            out_.push_back(fmt::format("the costs are {}, not measured on the machine that will run it",
                                       to_text(report_.profile.kind)));
        return std::move(out_);
    }

  private:
    void add_time() {
        if (!choice_.runner_up) return;
        const SweepSetting& next = report_.settings[*choice_.runner_up];
        const double longer = 100 * (chosen_.speed() / next.speed() - 1);
        if (longer >= 0.05)
            out_.push_back(
                fmt::format("if its rounds took {:.1f} % longer than predicted, {} would be as fast", longer,
                            short_name(next)));
    }

    /// SlimSpec's cost model: a head with rho_tau and nu is as fast as the full head at this kappa.
    void add_kappa() {
        const SweepSetting* full = chosen_.full ? &report_.settings[*chosen_.full] : nullptr;
        if (full == nullptr || full->head_ms <= 0) return;
        const double kappa = full->head_ms / (full->round_ms - full->head_ms);
        const auto even = [&](const SweepSetting& head) {
            const double rho = tau_of(head) / tau_of(*full), nu = head.head_ms / full->head_ms;
            return rho < 1 && rho > nu ? (1 - rho) / (rho - nu) : -1.0;
        };
        if (!is_full_head(chosen_.head)) {
            if (const double at = even(chosen_); at > 0)
                out_.push_back(fmt::format(
                    "kappa, the full head's time over the rest of the round, is {:.2f}; below {:.2f} the "
                    "full head would be faster with this tree",
                    kappa, at));
            return;
        }
        const SweepSetting* first = nullptr;
        for (const SweepSetting& one : report_.settings)
            if (one.full == chosen_.full && one.head_ms > 0 && even(one) > kappa &&
                (first == nullptr || even(one) < even(*first)))
                first = &one;
        if (first != nullptr)
            out_.push_back(
                fmt::format("kappa, the full head's time over the rest of the round, is {:.2f}; above {:.2f} "
                            "{} would be faster with this tree",
                            kappa, even(*first), first->head));
    }

    void add_batches() {
        std::set<int> batches;
        for (const SweepSetting& setting : report_.settings)
            if (setting.batch > chosen_.batch) batches.insert(setting.batch);
        for (const int batch : batches) {
            const auto other = choose_setting(report_.settings, batch);
            if (!other) continue;
            const SweepSetting& best = report_.settings[*other->chosen];
            const std::string sure = best.extrapolated ? "; the profile was not measured there" : "";
            const bool same = setting_name(best) == setting_name(chosen_);
            const std::string what = best.speedup() <= 1 ? "plain decoding"
                                     : same              ? "still the choice"
                                                         : short_name(best);
            out_.push_back(fmt::format("at batch {}: {}, {}{}", batch, what, times(other->speedup), sure));
        }
    }

    void add_tau() {
        const double even = chosen_.round_ms / chosen_.plain_ms;
        if (even > 1 && even < tau_of(chosen_))
            out_.push_back(fmt::format("below a tau of {:.2f} plain decoding is faster; here it is {:.2f}",
                                       even, tau_of(chosen_)));
        if (report_.temperature <= 0)
            out_.push_back(
                "at a temperature above 0 fewer drafts are accepted; record at that temperature and ask "
                "again");
    }

    /// Returns a setting with the conversations of one category alone.
    SweepSetting of_category(const SweepSetting& setting, const std::string& category) const {
        SweepSetting out = setting;
        out.units.clear();
        for (std::size_t c = 0; c < setting.units.size() && c < report_.categories.size(); ++c)
            if (report_.categories[c] == category) out.units.push_back(setting.units[c]);
        return out;
    }

    void add_categories() {
        std::map<std::string, std::size_t> sizes;
        for (const std::string& category : report_.categories) ++sizes[category];
        if (sizes.size() < 2) {
            out_.push_back("texts of another kind are accepted differently; record some of your own");
            return;
        }
        std::vector<std::pair<double, std::string>> speeds;
        std::size_t compared = 0;
        bool any = false;
        for (const auto& [category, count] : sizes) {
            speeds.emplace_back(of_category(chosen_, category).speedup(), category);
            if (count < min_conversations) continue;
            ++compared;
            any = add_category(category) || any;
        }
        std::ranges::sort(speeds);
        out_.push_back(fmt::format("by kind of text it gains from {:.2f}x ({}) to {:.2f}x ({})",
                                   speeds.front().first, speeds.front().second, speeds.back().first,
                                   speeds.back().second));
        if (compared > 0 && !any)
            out_.push_back(
                fmt::format("none of the {} kinds of text with at least {} conversations is shown to want "
                            "another setting",
                            compared, min_conversations));
    }

    /// Adds the choice for a category alone if it is shown to be faster there. The comparison leaves out
    /// what the category's choice has won by luck.
    bool add_category(const std::string& category) {
        std::vector<SweepSetting> settings;
        for (const SweepSetting& one : report_.settings)
            if (one.batch == chosen_.batch) settings.push_back(of_category(one, category));
        const auto best = choose_setting(settings, chosen_.batch);
        const SweepSetting here = of_category(chosen_, category);
        if (!best || best->speedup.value <= here.speedup()) return false;
        const SweepSetting& other = settings[*best->chosen];
        const SettingDraws draws(here.units.size());
        const auto gain = draws.ratio(other, here, draws.taus(here));
        if (!gain || !gain->interval || gain->interval->low <= 1) return false;
        out_.push_back(fmt::format("for {} alone: {}, {:.1f} % faster there", category, short_name(other),
                                   100 * (best->speedup.value / here.speedup() - 1)));
        return true;
    }

    const SweepReport& report_;
    const SweepSetting& chosen_;
    const SettingChoice& choice_;
    std::vector<std::string> out_;
};

/// Returns how sure the prediction is, in a sentence that starts with a space.
std::string how_sure(const SweepReport& report, const SettingChoice& choice) {
    std::string text;
    if (!choice.speedup.interval)
        text = fmt::format(" How sure is not known: {}.", no_interval_text(report.conversations));
    else
        text = fmt::format(
            " The interval holds the profile's error. It judges each of {} conversations by the setting that "
            "the others choose; {} of these choices are this one.{}",
            choice.conversations, choice.same_choice,
            choice.speedup.interval->contains(1) ? " It does not exclude plain decoding." : "");
    const SweepSetting& chosen = report.settings[*choice.chosen];
    if (report.profile.is_uncontrolled()) text += fmt::format(" Note: {}.", no_control_text);
    if (!chosen.exact)
        text += fmt::format(" Its acceptance is an estimate: {}.", fmt::join(report.estimates, "; "));
    if (chosen.extrapolated) text += " Its cost lies outside of what the profile measured.";
    return text;
}

/// Returns how the other settings compare, in sentences that start with a space.
std::string others(const SweepReport& report, const SettingChoice& choice) {
    const SweepSetting& chosen = report.settings[*choice.chosen];
    std::string text;
    const auto slower = [&](std::size_t s) {
        return 100 * (1 - report.settings[s].speed() / chosen.speed());
    };
    if (choice.fastest != choice.chosen)
        text += fmt::format(" {} is predicted {:.1f} % faster, which is not shown, and is less simple.",
                            short_name(report.settings[*choice.fastest]), -slower(*choice.fastest));
    std::size_t ties = 0;
    for (const SweepSetting& one : report.settings)
        if (one.batch == chosen.batch && &one != &chosen && one.figures.ties_with_best.value_or(false))
            ++ties;
    if (choice.runner_up) {
        const SweepSetting& next = report.settings[*choice.runner_up];
        const double by = slower(*choice.runner_up);
        text += fmt::format(" Runner-up: {}, {:.1f} % {}{}.", short_name(next), std::abs(by),
                            by < 0 ? "faster" : "slower",
                            next.figures.ties_with_best.value_or(false) ? ", not shown to differ" : "");
    }
    if (ties > 0)
        text += fmt::format(" {} of {} settings are not shown to be slower.", ties, report.settings.size());
    return text;
}

}  // namespace

std::vector<std::string> serving_options(const std::string& drafter, const TreeSpec& tree) {
    std::vector<std::string> out;
    if (tree.adaptive) return out;  // their policies have other parameters
    for (const ServingName& name : serving_names) {
        if (name.drafter != drafter_id(drafter)) continue;
        const bool model = !name.sglang.empty();
        if (!name.vllm.empty() && (!model || tree.topk == 1))  // vLLM drafts chains only
            out.push_back(fmt::format(
                R"(vLLM: --speculative-config '{{"method": "{}", {}"num_speculative_tokens": {}}}')",
                name.vllm, model ? R"("model": DRAFTER, )" : "", tree.levels()));
        if (model)
            out.push_back(
                fmt::format("SGLang: --speculative-algorithm {} --speculative-draft-model-path DRAFTER "
                            "--speculative-num-steps {} --speculative-eagle-topk {} "
                            "--speculative-num-draft-tokens {}",
                            name.sglang, tree.levels(), tree.topk, tree.nodes));
    }
    return out;
}

Advice advise(const SweepReport& report) {
    Advice out;
    const int batch = report.settings.front().batch;
    out.choice = choose_setting(report.settings, batch).value_or(SettingChoice{0, 0, {}, {}, {}, 0, 0});
    const SweepSetting& chosen = report.settings[*out.choice.chosen];
    const Estimate& speedup = out.choice.speedup;
    out.changes = Changes(report, out.choice).run();
    out.plain = speedup.value <= 1;
    std::string with;  // what the prediction is for
    if (!report.run.model.empty()) with += fmt::format(" --model {}", report.run.model);
    if (!report.profile.precision.empty()) with += fmt::format(" --precision {}", report.profile.precision);
    if (report.profile.threads > 0) with += fmt::format(" --threads {}", report.profile.threads);
    if (report.temperature > 0) with += fmt::format(" --temperature {:g}", report.temperature);
    const std::string sure = how_sure(report, out.choice), rest = others(report, out.choice);
    if (out.plain) {
        const std::string why =
            fmt::format("the best of {} settings, {}, is predicted at {} of plain decoding",
                        report.settings.size(), short_name(chosen), times(speedup));
        out.headline = "plain decoding";
        out.reasons = {as_sentence(why), std::string(trim(sure))};
        out.summary = fmt::format("Decode without a drafter: {}.{}", why, sure);
        out.run_line = fmt::format("draftscope run{} --drafter none", with);
        return out;
    }
    const std::string why = reason(chosen, report.settings);
    out.headline = short_name(chosen);
    out.reasons = {as_sentence(why), std::string(trim(sure)), std::string(trim(rest))};
    std::erase(out.reasons, "");
    out.summary = fmt::format("Use {}: predicted {} plain decoding at batch {}. Reason: {}.{}{}",
                              out.headline, times(speedup), batch, why, sure, rest);
    const std::string head = chosen.head.empty() ? std::string() : fmt::format(" --head {}", chosen.head);
    out.run_line =
        fmt::format("draftscope run{} --drafter {}{} --tree {}", with, chosen.drafter, head, chosen.tree);
    if (batch > 1) out.run_line += fmt::format(" --batch {}", batch);
    const auto tree = parse_tree_spec(chosen.tree);
    if (tree.ok()) out.serving = serving_options(chosen.drafter, *tree);
    return out;
}

}  // namespace draftscope
