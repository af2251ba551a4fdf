#include "app/jobs/sweep/pricing.h"

#include <algorithm>

#include "app/jobs/profile/profile_job.h"
#include "capture/run_setting.h"
#include "engine/draft/registry.h"

namespace draftscope {

std::string method_text(const SettingKey& setting) {
    return fmt::format("{} @ {}", pair_text(cost_name(setting.drafter), setting.head), setting.tree);
}

namespace {

/// Predicts the mean round of a setting whose drafts differ in length. In a batch, all sequences draft alike.
Result<StepCost> predict_lengths(const MachineProfile& profile, const SweepSetting& setting, double tau,
                                 double context) {
    DS_ASSIGN(const TreeSpec tree, parse_tree_spec(setting.tree));
    SettingKey chain = setting;
    chain.tree = "chain=1";
    DS_ASSIGN(StepSetting step, to_step_setting(method_text(chain), tau, context, setting.batch));
    const std::string drafter = step.drafter;
    const ConfidenceLimits limits = tree.adaptive ? tree.adaptive->limits() : ConfidenceLimits();
    // A draft that is dropped was drafted.
    const bool drops = std::max(limits.min_logprob, limits.min_cum_logprob) > ConfidenceLimits::none;
    const double rounds = setting.total().rounds;
    std::vector<WeightedStep> steps;
    for (int length = 0; length < std::ssize(setting.lengths); ++length) {
        if (setting.lengths[length] == 0) continue;
        const int levels = drops ? std::min(length + 1, tree.levels()) : length;
        step.nodes = length + 1;
        step.level_rows.assign(levels, 1);
        step.drafter = levels > 0 ? drafter : std::string(plain_drafter);
        DS_ASSIGN(StepCost cost, step_cost(profile, step));
        steps.push_back({setting.lengths[length] / rounds, std::move(cost)});
    }
    return mean_cost(profile, steps);
}

}  // namespace

Status price_setting(const MachineProfile& profile, double plain_context, SweepSetting& setting) {
    const SweepUnit total = setting.total();
    const double tau = total.tau().value_or(1);
    const double context = total.context().value_or(plain_context);
    DS_ASSIGN(const StepCost cost, setting.lengths.empty() ? predict_method(profile, method_text(setting),
                                                                            tau, context, setting.batch)
                                                           : predict_lengths(profile, setting, tau, context));
    DS_ASSIGN(const StepCost plain,
              predict_method(profile, std::string(plain_drafter), 1, plain_context, setting.batch));
    setting.round_ms = cost.total_ms();
    setting.head_ms = cost.head_ms;
    setting.curves = cost.curves;
    setting.plain_ms = plain.total_ms();
    setting.extrapolated = cost.extrapolated || plain.extrapolated;
    setting.cost_error.reset();
    setting.speedup_error.reset();
    if (!cost.error_ms || setting.round_ms <= 0) return {};
    setting.cost_error = *cost.error_ms / setting.round_ms;
    setting.speedup_error =
        profile.controls.empty()
            ? setting.cost_error
            : std::optional(ratio_error(cost.curves, cost.total_ms(), plain.curves, plain.total_ms()));
    return {};
}

ChainLengths chain_lengths(const std::vector<PathRanks>& texts, int levels) {
    ChainLengths out;
    out.levels = levels;
    const TreeSpec chain{levels - 1, 1, levels + 1};
    for (const PathRanks& text : texts) {
        std::vector<std::uint8_t> accepted;
        for (const PositionRanks& at : text.positions)
            accepted.push_back(static_cast<std::uint8_t>(accepted_at(at, chain)));
        accepted.resize(std::max(text.tokens - text.first_prefix, 0));
        out.accepted.push_back(std::move(accepted));
        out.first_prefix.push_back(text.first_prefix);
    }
    return out;
}

bool have_same_shape(const std::vector<std::vector<double>>& a, const std::vector<std::vector<double>>& b) {
    return std::ranges::equal(a, b, {}, &std::vector<double>::size, &std::vector<double>::size);
}

OracleLine oracle_line(const std::vector<const ChainLengths*>& drafters) {
    OracleLine line;
    for (const ChainLengths* one : drafters) {
        line.drafters.push_back(one->drafter);
        line.head = one->head;
        line.weights += one->weights;
        line.levels = std::max(line.levels, one->levels);
    }
    line.rounds.assign(drafters.size(), std::vector<double>(line.levels + 2));
    line.positions = line.rounds;
    const auto& texts = drafters.front()->accepted;
    for (std::size_t text = 0; text < texts.size(); ++text)
        for (std::size_t at = 0; at < texts[text].size();) {
            std::size_t winner = 0;
            for (std::size_t d = 1; d < drafters.size(); ++d)
                if (drafters[d]->accepted[text][at] > drafters[winner]->accepted[text][at]) winner = d;
            const std::size_t committed =
                std::min<std::size_t>(drafters[winner]->accepted[text][at] + 1u, texts[text].size() - at);
            line.rounds[winner][committed] += 1;
            line.positions[winner][committed] +=
                static_cast<double>(drafters.front()->first_prefix[text]) + static_cast<double>(at);
            at += committed;
        }
    return line;
}

Status price_oracle(const MachineProfile& profile, double plain_context, OracleLine& line) {
    const double rounds = line.count(), tau = line.tau();
    if (rounds == 0) return bad_input("an oracle without rounds has no cost");
    double ms = 0;
    for (std::size_t d = 0; d < line.drafters.size(); ++d) {
        const std::string head = d + 1 == line.drafters.size() ? line.head : std::string();
        DS_ASSIGN(StepSetting step,
                  to_step_setting(method_text({line.drafters[d], head, "chain=1", line.batch}), tau,
                                  plain_context, line.batch));
        for (std::size_t tokens = 1; tokens < line.rounds[d].size(); ++tokens) {
            if (line.rounds[d][tokens] == 0) continue;
            if (!line.positions.empty()) step.context = line.positions[d][tokens] / line.rounds[d][tokens];
            step.nodes = static_cast<int>(tokens);
            step.level_rows.assign(std::max<std::size_t>(tokens - 1, 1), 1);
            DS_ASSIGN(const StepCost cost, step_cost(profile, step));
            ms += line.rounds[d][tokens] * cost.total_ms();
        }
    }
    line.round_ms = ms / rounds;
    DS_ASSIGN(const StepCost plain,
              predict_method(profile, std::string(plain_drafter), 1, plain_context, line.batch));
    line.plain_ms = plain.total_ms();
    return {};
}

}  // namespace draftscope
