#include "app/jobs/sweep/advice.h"

#include <fmt/format.h>

#include "capture/head_traits.h"
#include "engine/draft/registry.h"

namespace draftscope {
namespace {

std::string name_of(const SweepSetting& setting) {
    return setting.head.empty() ? fmt::format("{} @ {}", setting.drafter, setting.tree)
                                : fmt::format("{} x {} @ {}", setting.drafter, setting.head, setting.tree);
}

std::string times(const Estimate& estimate) {
    if (!estimate.interval) return fmt::format("{:.2f}x", estimate.value);
    return fmt::format("{:.2f}x [{:.2f}, {:.2f}]", estimate.value, estimate.interval->low,
                       estimate.interval->high);
}

/// Returns why the choice wins: what its head keeps and saves, or its tree alone.
std::string reason(const SweepSetting& setting, const SweepRow& row, const std::vector<SweepSetting>& all) {
    std::string text = fmt::format(
        "it commits {:.2f} tokens in a round of {:.2f} ms, where plain decoding takes "
        "{:.2f} ms a token",
        row.tau.value, setting.round_ms, setting.plain_ms);
    if (!setting.full || is_full_head(setting.head)) return text;
    const SweepSetting& full = all[*setting.full];
    const SweepUnit sum = full.total();
    return text + fmt::format(
                      "; its head keeps {:.1f} % of the full head's tau and makes the round {:.1f} % shorter",
                      100 * row.tau.value * sum.rounds / sum.committed,
                      100 * (1 - setting.round_ms / full.round_ms));
}

const SweepRow* first_of_batch(const SweepReport& report, int batch) {
    for (const SweepRow& row : report.rows)
        if (report.settings[row.setting].batch == batch) return &row;
    return nullptr;
}

std::vector<std::string> changes(const SweepReport& report, const SweepSetting& chosen) {
    std::vector<std::string> out;
    std::vector<int> batches;
    for (const SweepSetting& setting : report.settings)
        if (setting.batch > chosen.batch && (batches.empty() || setting.batch > batches.back()))
            batches.push_back(setting.batch);
    for (const int batch : batches) {
        const SweepRow* row = first_of_batch(report, batch);
        if (row == nullptr) continue;
        const SweepSetting& best = report.settings[row->setting];
        const std::string what = row->speedup.value <= 1 ? std::string("plain decoding") : name_of(best);
        out.push_back(what == name_of(chosen)
                          ? fmt::format("at batch {} it stays the fastest, {}", batch, times(row->speedup))
                          : fmt::format("at batch {}: {}, {}", batch, what, times(row->speedup)));
    }
    if (report.temperature <= 0)
        out.push_back(
            "at a temperature above 0 fewer drafts are accepted; record at that temperature and ask again");
    out.push_back("texts of another kind are accepted differently; record some of your own");
    if (report.profile.kind != ProfileKind::measured)
        out.push_back(fmt::format("the costs are {}, not measured on the machine that will run it",
                                  to_text(report.profile.kind)));
    return out;
}

}  // namespace

std::vector<std::string> serving_options(const std::string& drafter, const TreeSpec& tree) {
    const std::string_view id = drafter_id(drafter);
    const bool eagle3 = id == "eagle3";
    std::vector<std::string> out;
    if (id == "ngram") {
        out.push_back(
            fmt::format(R"(vLLM: --speculative-config '{{"method": "ngram", "num_speculative_tokens": {}}}')",
                        tree.levels()));
        return out;
    }
    if (!eagle3 && id != "eagle2") return out;
    if (tree.topk == 1)
        out.push_back(fmt::format(
            R"(vLLM: --speculative-config '{{"method": "{}", "model": DRAFTER, "num_speculative_tokens": {}}}')",
            eagle3 ? "eagle3" : "eagle", tree.levels()));
    out.push_back(
        fmt::format("SGLang: --speculative-algorithm {} --speculative-draft-model-path DRAFTER "
                    "--speculative-num-steps {} --speculative-eagle-topk {} "
                    "--speculative-num-draft-tokens {}",
                    eagle3 ? "EAGLE3" : "EAGLE", tree.levels(), tree.topk, tree.nodes));
    return out;
}

Advice advise(const SweepReport& report, const std::string& model) {
    const SweepRow& best = report.rows.front();
    const SweepSetting& chosen = report.settings[best.setting];
    Advice out;
    out.changes = changes(report, chosen);
    const std::string model_option = model.empty() ? std::string() : fmt::format(" --model {}", model);
    if (best.speedup.value <= 1) {
        out.summary = fmt::format(
            "Decode without a drafter: the fastest of {} settings, {}, is predicted at {} of plain decoding.",
            report.settings.size(), name_of(chosen), times(best.speedup));
        out.run_line = fmt::format("draftscope run{} --drafter none", model_option);
        return out;
    }
    out.summary = fmt::format("Use {}: predicted {} plain decoding at batch {}. Reason: {}.", name_of(chosen),
                              times(best.speedup), chosen.batch, reason(chosen, best, report.settings));
    std::size_t ties = 0;
    const SweepRow* runner_up = nullptr;
    for (const SweepRow& row : report.rows) {
        const SweepSetting& setting = report.settings[row.setting];
        if (&row == &best || setting.batch != chosen.batch) continue;
        ties += row.ties_with_best.value_or(false) ? 1 : 0;
        if (runner_up == nullptr) runner_up = &row;
    }
    if (runner_up != nullptr)
        out.summary +=
            fmt::format(" Runner-up: {}, {:.1f} % slower{}.", name_of(report.settings[runner_up->setting]),
                        100 * (1 - runner_up->tokens_per_second.value / best.tokens_per_second.value),
                        !runner_up->ties_with_best   ? ""
                        : *runner_up->ties_with_best ? ", not shown to differ"
                                                     : "");
    if (ties > 0)
        out.summary +=
            fmt::format(" {} of {} settings are not shown to be slower.", ties, report.settings.size());
    if (!best.speedup.interval)
        out.summary += fmt::format(" How sure is not known: {}.", no_interval_text(report.conversations));
    if (!chosen.exact) out.summary += " Its acceptance is an estimate.";
    if (chosen.extrapolated) out.summary += " Its cost lies outside of what the profile measured.";
    const std::string head = chosen.head.empty() ? std::string() : fmt::format(" --head {}", chosen.head);
    out.run_line = fmt::format("draftscope run{} --drafter {}{} --tree {}", model_option, chosen.drafter,
                               head, chosen.tree);
    if (chosen.batch > 1) out.run_line += fmt::format(" --batch {}", chosen.batch);
    const auto tree = parse_tree_spec(chosen.tree);
    if (tree.ok()) out.serving = serving_options(chosen.drafter, *tree);
    return out;
}

}  // namespace draftscope
