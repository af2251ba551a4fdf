#include "stats/setting_choice.h"

#include <algorithm>
#include <tuple>

#include "capture/head_traits.h"

namespace draftscope {
namespace {

constexpr std::size_t none = SettingDraws::none;

class Chooser {
  public:
    Chooser(std::span<const SweepSetting> settings, int batch, const BootstrapOptions& options)
        : settings_(settings), options_(options) {
        for (std::size_t s = 0; s < settings.size(); ++s) {
            if (settings[s].batch != batch || settings[s].speed() <= 0) continue;
            candidates_.push_back({s, settings[s].total()});
            conversations_ = std::max(conversations_, settings[s].units.size());
        }
        draws_.emplace(conversations_, options);
    }

    std::optional<SettingChoice> run() {
        if (candidates_.empty()) return std::nullopt;
        SettingChoice out;
        out.fastest = fastest(none, [](std::size_t) { return true; });
        out.chosen = choose(none);
        const SweepSetting& chosen = settings_[*out.chosen];
        out.runner_up = fastest(none, [&](std::size_t s) {
            return settings_[s].drafter != chosen.drafter || settings_[s].head != chosen.head;
        });
        if (!out.runner_up) out.runner_up = fastest(none, [&](std::size_t s) { return s != out.chosen; });
        expect(out);
        return out;
    }

  private:
    struct Candidate {
        std::size_t setting = 0;
        SweepUnit total;
    };

    /// Returns tokens per millisecond without a conversation.
    double speed(const Candidate& one, std::size_t left_out) const {
        const SweepSetting& setting = settings_[one.setting];
        SweepUnit sum = one.total;
        if (left_out < setting.units.size()) {
            sum.rounds -= setting.units[left_out].rounds;
            sum.committed -= setting.units[left_out].committed;
        }
        return sum.rounds > 0 ? sum.committed / sum.rounds / setting.round_ms : 0;
    }

    template <typename Wanted>
    std::optional<std::size_t> fastest(std::size_t left_out, Wanted wanted) const {
        std::optional<std::size_t> best;
        double highest = 0;
        for (const Candidate& one : candidates_) {
            if (!wanted(one.setting)) continue;
            const double mine = speed(one, left_out);
            if (best && (mine < highest ||
                         (mine == highest && !is_simpler(settings_[one.setting], settings_[*best]))))
                continue;
            best = one.setting;
            highest = mine;
        }
        return best;
    }

    /// Returns the choice of all conversations but one.
    std::size_t choose(std::size_t left_out) const {
        const std::size_t best = *fastest(left_out, [](std::size_t) { return true; });
        if (conversations_ < min_conversations) return best;
        const SweepSetting& reference = settings_[best];
        const std::vector<double> reference_taus = draws_->taus(reference, left_out);
        const double lowest = (1 - choice_margin) * speed({best, reference.total()}, left_out);
        std::size_t chosen = best;
        for (const Candidate& one : candidates_) {
            const SweepSetting& setting = settings_[one.setting];
            if (speed(one, left_out) < lowest || !is_simpler(setting, settings_[chosen])) continue;
            const auto against = draws_->ratio(setting, reference, reference_taus, left_out);
            if (against && against->interval && against->interval->contains(1)) chosen = one.setting;
        }
        return chosen;
    }

    /// Sets the figures of every conversation under the choice of the others.
    void expect(SettingChoice& out) const {
        out.conversations = conversations_;
        if (conversations_ < 2) {
            out.tau.value = settings_[*out.chosen].total().tau().value_or(0);
            out.speedup.value = settings_[*out.chosen].speedup();
            return;
        }
        std::vector<Fraction> taus, speedups;
        double error = 0;
        for (std::size_t c = 0; c < conversations_; ++c) {
            const std::size_t choice = choose(c);
            out.same_choice += choice == out.chosen ? 1 : 0;
            const SweepSetting& setting = settings_[choice];
            error = std::max(error, setting.speedup_error.value_or(0));
            if (c >= setting.units.size()) continue;
            const SweepUnit& unit = setting.units[c];
            taus.push_back({unit.committed, unit.rounds});
            speedups.push_back({unit.committed * setting.plain_ms, unit.rounds * setting.round_ms});
        }
        BootstrapOptions options = options_;
        options.resolution = 0;
        out.tau = ratio_of_sums(taus, options);
        options.resolution = error;
        out.speedup = ratio_of_sums(speedups, options);
    }

    std::span<const SweepSetting> settings_;
    const BootstrapOptions& options_;
    std::vector<Candidate> candidates_;
    std::size_t conversations_ = 0;
    std::optional<SettingDraws> draws_;
};

}  // namespace

bool is_simpler(const SweepSetting& a, const SweepSetting& b) {
    const auto rank = [](const SweepSetting& one) {
        return std::tuple(!one.head.empty() && !is_full_head(one.head), one.shape.topk > 1, one.shape.nodes,
                          one.round_ms);
    };
    return rank(a) < rank(b);
}

std::optional<SettingChoice> choose_setting(std::span<const SweepSetting> settings, int batch,
                                            const BootstrapOptions& options) {
    return Chooser(settings, batch, options).run();
}

}  // namespace draftscope
