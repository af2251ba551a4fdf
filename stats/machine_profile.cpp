#include "stats/machine_profile.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "capture/head_traits.h"
#include "capture/run_setting.h"

namespace draftscope {
namespace {

/// Returns "a, b"; "none" for an empty set.
std::string list_text(const std::set<std::string>& names) {
    return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
}

/// Adds a call of a curve; calls with the same rows are one.
void add_curve(std::vector<CurveTime>& curves, CurveTime one) {
    for (CurveTime& known : curves)
        if (known.curve == one.curve && known.rows == one.rows) {
            if (known.ms + one.ms > 0)
                known.error = (known.error * known.ms + one.error * one.ms) / (known.ms + one.ms);
            known.ms += one.ms;
            for (std::size_t i = 0; i < one.noise.size(); ++i) known.noise[i] += one.noise[i];
            return;
        }
    curves.push_back(std::move(one));
}

/// Without a control the errors of curves add up.
double error_ms(const MachineProfile& profile, const StepCost& cost) {
    const double total = cost.total_ms();
    if (!profile.controls.empty()) return total * ratio_error(cost.curves, total, {}, total);
    double sum = 0;
    for (const CurveTime& one : cost.curves) sum += one.ms * one.error;
    return sum;
}

/// Adds up the parts of a step.
class StepSum {
  public:
    StepSum(const MachineProfile& profile, const StepSetting& setting)
        : profile_(profile), setting_(setting) {}

    Result<StepCost> run() {
        DS_TRY(check());
        DS_TRY(add(CostPart::verify, cost_.verify_ms, rows_at(setting_.nodes)));
        DS_TRY(add(CostPart::overhead, cost_.overhead_ms, rows_at(setting_.nodes)));
        if (drafts()) DS_TRY(profile_.find(CostPart::draft, setting_.drafter) ? add_whole() : add_levels());
        if (known_) cost_.error_ms = error_ms(profile_, cost_);
        return cost_;
    }

  private:
    bool drafts() const { return !setting_.drafter.empty() && setting_.drafter != plain_drafter; }

    Status check() const {
        if (setting_.batch < 1) return bad_input("batch {}: must be at least 1", setting_.batch);
        if (setting_.nodes < 1) return bad_input("nodes {}: must be at least 1", setting_.nodes);
        if (!(setting_.context >= 0)) return bad_input("context {}: must not be negative", setting_.context);
        if (!(setting_.committed >= 1))
            return bad_input("committed tokens {}: must be at least 1", setting_.committed);
        for (const int rows : setting_.level_rows)
            if (rows < 1) return bad_input("rows of a draft level {}: must be at least 1", rows);
        if (drafts() && setting_.level_rows.empty())
            return bad_input("drafter {}: needs the rows of its draft levels, found 0 levels",
                             setting_.drafter);
        return {};
    }

    /// Sizes of a call with `rows` rows for each sequence.
    CostSizes rows_at(double rows) const {
        CostSizes sizes;
        sizes.rows = rows * setting_.batch;
        sizes.batch = setting_.batch;
        sizes.context = setting_.context;
        sizes.verify_ms = cost_.verify_ms;
        return sizes;
    }

    void add(const PartCost& part, double& sum, const CostSizes& sizes) {
        const double ms = part.curve.ms(sizes);
        sum += ms;
        cost_.extrapolated = cost_.extrapolated || !part.curve.covers(sizes);
        known_ = known_ && part.curve.error.has_value();
        CurveTime one{static_cast<std::size_t>(&part - profile_.costs.data()), ms,
                      part.curve.error.value_or(0), 0, part.curve.noise(sizes)};
        if (!one.noise.empty()) {
            one.error = part.curve.own_error(sizes);
            one.rows = sizes.rows;
        }
        add_curve(cost_.curves, std::move(one));
    }
    Status add(CostPart part, double& sum, const CostSizes& sizes) {
        const PartCost* found = profile_.find(part);
        if (found == nullptr) return bad_input("{}: has no cost of {}", profile_.path, to_text(part));
        add(*found, sum, sizes);
        return {};
    }

    /// A draft whose cost is known as a whole.
    Status add_whole() {
        if (!is_full_head(setting_.head))
            return bad_input("{}: has the cost of drafter {} with its own head only, none of head {}",
                             profile_.path, setting_.drafter, setting_.head);
        add(*profile_.find(CostPart::draft, setting_.drafter), cost_.drafter_ms, rows_at(setting_.nodes));
        return {};
    }

    Status add_levels() {
        const PartCost* catch_up = profile_.find(CostPart::catch_up, setting_.drafter);
        if (catch_up == nullptr) return unknown_drafter();
        add(*catch_up, cost_.drafter_ms,
            rows_at(setting_.catch_up > 0 ? setting_.catch_up : setting_.committed));
        const PartCost* level = profile_.find(CostPart::level, setting_.drafter);
        for (std::size_t l = 1; level != nullptr && l < setting_.level_rows.size(); ++l)
            add(*level, cost_.drafter_ms, rows_at(setting_.level_rows[l]));
        const PartCost* head = profile_.find(CostPart::head, setting_.drafter, setting_.head);
        if (head == nullptr) return is_headless() ? Status() : unknown_head();
        if (!head->size_parameter.empty() && !(setting_.head_size > 0))
            return bad_input("head {}: its cost depends on {}; give its value", setting_.head,
                             head->size_parameter);
        for (std::size_t l = 0; l < setting_.level_rows.size(); ++l) {
            CostSizes sizes;  // a head's call depends on neither context nor batch, only on its rows
            sizes.rows = setting_.level_rows[l] * setting_.batch;
            sizes.size = head->size_parameter.empty() ? 0 : setting_.head_size;
            sizes.first_level = l == 0;
            add(*head, cost_.head_ms, sizes);
        }
        return {};
    }

    /// Returns whether the drafter calls no LM head.
    bool is_headless() const {
        return is_full_head(setting_.head) &&
               std::none_of(profile_.costs.begin(), profile_.costs.end(), [&](const PartCost& one) {
                   return one.part == CostPart::head && one.drafter == setting_.drafter;
               });
    }
    Error unknown_drafter() const {
        std::set<std::string> known;
        for (const PartCost& one : profile_.costs)
            if (!one.drafter.empty()) known.insert(one.drafter);
        return bad_input("{}: has no cost of drafter {}; it has {}", profile_.path, setting_.drafter,
                         list_text(known));
    }
    Error unknown_head() const {
        std::set<std::string> known;
        for (const PartCost& one : profile_.costs)
            if (one.part == CostPart::head && one.drafter == setting_.drafter) known.insert(one.head);
        return bad_input("{}: has no cost of head {} with drafter {}; it has {}", profile_.path,
                         setting_.head, setting_.drafter, list_text(known));
    }

    const MachineProfile& profile_;
    const StepSetting& setting_;
    StepCost cost_;
    bool known_ = true;  ///< every part so far has an error
};

}  // namespace

double MachineProfile::control_ms() const {
    std::vector<double> sorted = controls;
    std::ranges::sort(sorted);
    return sorted.empty() ? 0 : sorted[sorted.size() / 2];
}

const PartCost* MachineProfile::find(CostPart part, std::string_view drafter, std::string_view head) const {
    for (const PartCost& one : costs)
        if (one.part == part && one.drafter == drafter && one.head == head) return &one;
    return nullptr;
}

Status check_profile(const MachineProfile& profile, const ProfileUse& use) {
    const auto differs = [&](std::string_view field, const auto& has, const auto& wanted,
                             std::string_view option) {
        return bad_input("{}: {} is {}, but {} is wanted; use another profile, or {}", profile.path, field,
                         has, wanted, option);
    };
    if (!use.backend.empty() && profile.backend != use.backend)
        return differs("backend", profile.backend, use.backend, "--backend " + profile.backend);
    if (!use.precision.empty() && profile.precision != use.precision)
        return differs("precision", profile.precision, use.precision, "--precision " + profile.precision);
    if (use.vocab > 0 && profile.vocab != use.vocab)
        return differs("vocab", profile.vocab, use.vocab, "model " + profile.model);
    return {};
}

double ratio_error(std::span<const CurveTime> a, double a_ms, std::span<const CurveTime> b, double b_ms) {
    std::map<std::pair<std::size_t, double>, double> misfits;
    std::map<std::pair<std::size_t, std::size_t>, double> noise;
    const auto add = [&](std::span<const CurveTime> curves, double scale) {
        for (const CurveTime& one : curves) {
            misfits[{one.curve, one.rows}] += scale * one.error * one.ms;
            for (std::size_t i = 0; i < one.noise.size(); ++i) noise[{one.curve, i}] += scale * one.noise[i];
        }
    };
    add(a, 1 / a_ms);
    add(b, -1 / b_ms);
    double squares = 0;
    for (const auto& [key, error] : misfits) squares += error * error;
    for (const auto& [key, error] : noise) squares += error * error;
    return std::sqrt(squares);
}

StepCost mean_cost(const MachineProfile& profile, std::span<const WeightedStep> steps) {
    StepCost mean;
    bool known = true;
    for (const auto& [weight, cost] : steps) {
        mean.verify_ms += weight * cost.verify_ms;
        mean.drafter_ms += weight * cost.drafter_ms;
        mean.head_ms += weight * cost.head_ms;
        mean.overhead_ms += weight * cost.overhead_ms;
        mean.extrapolated = mean.extrapolated || cost.extrapolated;
        known = known && cost.error_ms.has_value();
        for (CurveTime one : cost.curves) {
            one.ms *= weight;
            for (double& noise : one.noise) noise *= weight;
            add_curve(mean.curves, std::move(one));
        }
    }
    if (known) mean.error_ms = error_ms(profile, mean);
    return mean;
}

Result<StepCost> step_cost(const MachineProfile& profile, const StepSetting& setting) {
    return StepSum(profile, setting).run();
}

}  // namespace draftscope
