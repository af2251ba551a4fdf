#include "app/gui/models/plane.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "app/gui/models/coverage.h"
#include "app/gui/models/selection.h"
#include "app/jobs/commands/commands.h"
#include "base/format_count.h"
#include "base/phase.h"
#include "capture/head_traits.h"
#include "capture/run_setting.h"
#include "stats/cost_model.h"
#include "stats/speedup.h"

namespace draftscope {
namespace {

/// What the drafts of a node say of its distributions.
struct DraftedMass {
    double both = 0, target = 0, draft = 0;  ///< sums of min(p, q), p and q
    bool counts = false, has_drafts = false;
};

/// Adds the positions of one tree. `masses` is memory for reuse.
void add_tree(const Snapshot& snapshot, const RoundEntry& round, std::vector<DraftedMass>& masses,
              AlphaBounds& alpha) {
    masses.assign(round.nodes.count, {});
    for (std::uint32_t i = 0; i < round.nodes.count; ++i) {
        const NodeRow& node = snapshot.nodes[round.nodes.first + i];
        masses[i].counts = node.parent < 0 || node.accepted;
        if (node.parent < 0 || node.parent >= static_cast<int>(i)) continue;
        DraftedMass& parent = masses[node.parent];
        if (!parent.counts || !node.target_prob) continue;
        const double p = static_cast<double>(*node.target_prob),
                     q = std::exp(static_cast<double>(node.draft_logprob));
        parent.both += std::min(p, q);
        parent.target += p;
        parent.draft += q;
        parent.has_drafts = true;
    }
    for (const DraftedMass& mass : masses) {
        if (!mass.counts || !mass.has_drafts) continue;
        const double left = std::max(0.0, 1 - std::max(mass.target, mass.draft));
        alpha.low += std::min(mass.both, 1.0);
        alpha.high += std::min(mass.both + left, 1.0);
        ++alpha.positions;
    }
}

/// Returns "3.21 to 3.42", or one number if both print the same.
std::string range_text(double low, double high) {
    const std::string a = fmt::format("{:.2f}", low), b = fmt::format("{:.2f}", high);
    return a == b ? a : fmt::format("{} to {}", a, b);
}

constexpr double published_kappa = 0.25;  // SlimSpec, figure 3: Llama-3.1-8B on one H200
constexpr int max_lines = 12;

std::string short_label(const HeadStats& stats) {
    static constexpr const char* suffixes[] = {"", " (shadow)", " (aligned)", " (calibration)"};
    return stats.head + suffixes[static_cast<std::size_t>(stats.mode)];
}

std::string reads_text(const HeadTraffic& reads) {
    if (reads.streamed + reads.gathered <= 0) return {};
    std::string text = fmt::format("{:.1f} MB per round", (reads.streamed + reads.gathered) / 1e6);
    if (reads.gathered > 0) text += fmt::format(", {:.1f} MB of it in scattered rows", reads.gathered / 1e6);
    if (reads.explained_ns)
        text +=
            fmt::format("; T_head is {:.2f} x the time at measured bandwidth ({:.0f} us {})", reads.times(),
                        std::abs(reads.constant_ns()) / 1e3, reads.constant_ns() < 0 ? "less" : "more");
    return text;
}

PlanePoint make_point(const HeadComparison& head, double kappa, const RunHeadTraits& traits) {
    const HeadStats& stats = head.stats;
    const AcceptanceCost& cost = head.cost;
    PlanePoint point;
    static_cast<HeadStats&>(point) = stats;
    point.label = short_label(stats);
    point.rgb = traits.of(stats.head).rgb;
    point.nu = cost.nu->value;
    point.rho_tau = cost.rho_tau->value;
    point.nu_interval = cost.nu->interval;
    point.rho_interval = cost.rho_tau->interval;
    point.kappa = kappa;
    if (cost.kappa) point.kappa_interval = cost.kappa->interval;
    point.reference = is_full_head(stats.head);
    point.estimate = !point.reference && head.estimate;
    point.path_candidates = head.path_candidates;
    point.predicted =
        cost.predicted.value_or(Estimate{predicted_speedup(point.rho_tau, point.nu, kappa), {}});
    point.measured = cost.measured;
    point.unexplained = cost.unexplained;
    point.break_even_rho_tau = iso_rho_tau(1, point.nu, kappa);
    point.break_even_nu = break_even_nu(point.rho_tau, kappa);
    point.size_text = describe_shortlist(stats);
    point.reads_text = reads_text(head.reads);
    return point;
}

/// Returns what a reader of SlimSpec's kappa must know of T_head here.
std::string softmax_text(const Snapshot& snapshot, RowId run_id, const HeadComparison* live) {
    std::string text = "T_head here has the softmax of the draft logits, which SlimSpec counts elsewhere";
    for (const PhaseStats& phase : phase_stats(snapshot, run_id)) {
        if (phase.phase_id != static_cast<int>(Phase::softmax) || phase.exposed_ns <= 0 || live == nullptr)
            continue;
        const double head_ns = live->stats.head_ns_per_round * static_cast<double>(live->stats.timed_rounds);
        if (head_ns > 0)
            return fmt::format("{}: {:.1f} % of it", text,
                               100 * static_cast<double>(phase.exposed_ns) / head_ns);
    }
    return text + "; full:softmax=separate measures its share";
}

std::string missing(const HeadComparison* live) {
    if (live == nullptr) return "No rounds yet. The head appears after the first ones.";
    if (live->reference == FullReference::none)
        return "No full-head reference. nu and rho_tau need calibration rounds with the full head, a "
               "shadow head \"full\", or a comparable run of the head \"full\" in the same capture.";
    if (!live->cost.rho_tau && !live->no_interval.empty())
        return "No point: " + to_window_words(live->no_interval) + ".";
    return "The driving head has no measured time yet.";
}

void add_points(PlaneModel& model, const std::vector<HeadComparison>& heads, const RunHeadTraits& traits) {
    const HeadComparison* compared = nullptr;
    for (const HeadComparison& head : heads) {
        if (!head.cost.nu || !head.cost.rho_tau) continue;
        PlanePoint point = make_point(head, model.kappa_shown, traits);
        if (!point.reference &&
            (compared == nullptr || head.cost.conversations > compared->cost.conversations))
            compared = &head;
        model.points.push_back(std::move(point));
    }
    std::ranges::stable_sort(model.points, {}, [](const PlanePoint& p) { return p.mode == HeadMode::drive; });
    if (compared != nullptr)
        model.interval_text = compared->no_interval.empty()
                                  ? interval_text(compared->cost.conversations)
                                  : "no error bars: " + to_window_words(compared->no_interval);
    else if (!model.points.empty())
        model.interval_text = "only the full head, at (1, 1) by definition";
}

/// Returns the points of a run's heads other than the full one, named by the run.
std::vector<PlanePoint> points_of_run(const Snapshot& snapshot, const RunRow& run, bool in_shown_capture) {
    const std::vector<HeadComparison> heads = head_costs(snapshot, run.id);
    const std::string file = snapshot.source.empty() ? "this window" : short_name(snapshot.source);
    const RunHeadTraits traits(run);
    std::vector<PlanePoint> points;
    for (const HeadComparison& head : heads) {
        if (!head.cost.nu || !head.cost.rho_tau || !head.cost.kappa || is_full_head(head.stats.head))
            continue;
        PlanePoint point = make_point(head, head.cost.kappa->value, traits);
        point.label +=
            in_shown_capture ? fmt::format(" (run {})", run.id) : fmt::format(" ({}, run {})", file, run.id);
        point.run = fmt::format("{}: run {}, {}, {}, {}", file, run.id, run.target, run.drafter, run.tree);
        points.push_back(std::move(point));
    }
    return points;
}

bool same(const PlaneWindow& a, const PlaneWindow& b) {
    const auto near_by = [](double x, double y) { return std::abs(x - y) < 1e-6; };
    return near_by(a.nu_min, b.nu_min) && near_by(a.nu_max, b.nu_max) && near_by(a.rho_min, b.rho_min) &&
           near_by(a.rho_max, b.rho_max);
}

std::string number_text(const char* name, const std::optional<double>& value) {
    return value ? fmt::format("{} {:.2f}  ", name, *value) : std::string();
}

}  // namespace

std::optional<AlphaBounds> recorded_alpha(const Snapshot& snapshot, const RunRow& run) {
    if (run.temperature != 0 && run.temperature != 1) return std::nullopt;
    AlphaBounds alpha;
    std::vector<DraftedMass> masses;
    for (std::size_t r = 0; r < snapshot.rounds.size(); ++r) {
        const RoundEntry& round = snapshot.rounds[r];
        if (round.row.run_id != run.id || round.nodes.count < 2 || snapshot.stored != nullptr) continue;
        add_tree(snapshot, round, masses, alpha);
        alpha.drafts = std::max(alpha.drafts, round.row.tree_depth);
        alpha.chains = alpha.chains && round.row.tree_nodes == round.row.tree_depth + 1;
    }
    if (alpha.positions == 0) return std::nullopt;
    alpha.low /= static_cast<double>(alpha.positions);
    alpha.high /= static_cast<double>(alpha.positions);
    return alpha;
}

std::string alpha_text(const AlphaBounds& alpha, double tau, double speedup) {
    const double low = expected_tokens(alpha.low, alpha.drafts),
                 high = expected_tokens(alpha.high, alpha.drafts);
    std::string text =
        fmt::format("alpha {} by the recorded drafts; a chain of {} has {} tokens by DynaSpec's eq. 1",
                    range_text(alpha.low, alpha.high), alpha.drafts, range_text(low, high));
    // Eq. 2 divides the tokens by the round's time, as the measured speed-up does tau.
    if (alpha.chains && tau > 0 && speedup > 0)
        text += fmt::format(", x {} AR by eq. 2", range_text(low * speedup / tau, high * speedup / tau));
    return text;
}

std::vector<IsoLine> iso_lines(double kappa, const PlaneWindow& window) {
    std::vector<IsoLine> lines;
    if (window.nu_max <= window.nu_min || window.rho_max <= window.rho_min || kappa < 0) return lines;
    // Two corners bound the levels: the speed-up increases with rho_tau and decreases with nu.
    const double min_speedup = predicted_speedup(window.rho_min, window.nu_max, kappa);
    const double max_speedup = predicted_speedup(window.rho_max, window.nu_min, kappa);
    double step = 0.01;
    for (const double candidate : {0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0}) {
        step = candidate;
        if ((max_speedup - min_speedup) / step <= max_lines - 1) break;
    }
    const auto first = static_cast<long>(std::ceil(min_speedup / step)),
               last = static_cast<long>(std::floor(max_speedup / step));
    for (long k = first; k <= last && k - first < max_lines; ++k) {
        IsoLine line;
        line.speedup = static_cast<double>(k) * step;
        double from = window.nu_min, to = window.nu_max;
        const double slope = line.speedup * kappa / (1 + kappa), base = line.speedup / (1 + kappa);
        if (slope > 0) {
            from = std::max(from, (window.rho_min - base) / slope);
            to = std::min(to, (window.rho_max - base) / slope);
        } else if (base < window.rho_min || base > window.rho_max) {
            continue;
        }
        if (from >= to) continue;
        line.nu[0] = from;
        line.nu[1] = to;
        line.rho[0] = iso_rho_tau(line.speedup, from, kappa);
        line.rho[1] = iso_rho_tau(line.speedup, to, kappa);
        lines.push_back(line);
    }
    return lines;
}

PlaneWindow fit_window(std::span<const PlanePoint> points, double nu_margin, double rho_margin) {
    PlaneWindow window{0, 1.12, 0.72, 1.06};
    const auto include = [](double& low, double& high, double value, double margin) {
        const double part = std::clamp(margin, 0.0, 0.3);
        low = std::min(low, value);
        high = std::max(high, value);
        // The margin is a fraction of the range, so both ends are iterated.
        for (int i = 0; i < 12; ++i) {
            low = std::min(low, value - part * (high - low));
            high = std::max(high, value + part * (high - low));
        }
    };
    for (int pass = 0; pass < 3; ++pass)
        for (const PlanePoint& point : points) {
            include(window.nu_min, window.nu_max, point.nu, nu_margin);
            include(window.rho_min, window.rho_max, point.rho_tau, rho_margin);
            // Intervals are shown in full; only extreme ones are cut at the border.
            if (point.nu_interval)
                window.nu_max = std::max(window.nu_max, std::min(point.nu_interval->high, 2.0) + 0.04);
            if (!point.rho_interval) continue;
            window.rho_min = std::min(window.rho_min, std::max(point.rho_interval->low, 0.0) - 0.03);
            window.rho_max = std::max(window.rho_max, std::min(point.rho_interval->high, 2.0) + 0.03);
        }
    return window;
}

bool contains_points(const PlaneWindow& window, std::span<const PlanePoint> points, double nu_margin,
                     double rho_margin) {
    const double nu = nu_margin * (window.nu_max - window.nu_min) * 0.999;
    const double rho = rho_margin * (window.rho_max - window.rho_min) * 0.999;
    return std::all_of(points.begin(), points.end(), [&](const PlanePoint& point) {
        return point.nu - nu >= window.nu_min && point.nu + nu <= window.nu_max &&
               point.rho_tau - rho >= window.rho_min && point.rho_tau + rho <= window.rho_max;
    });
}

bool PlaneView::follow(std::span<const PlanePoint> points, double nu_margin, double rho_margin, bool fit) {
    const auto driving = points.last(points.empty() ? 0 : 1);
    if (shown_ && !same(*shown_, window_)) moved_ = true;
    const bool lost = moved_ && held_driving_ && !contains_points(*shown_, driving, 0, 0);
    if (fit || lost || !shown_) moved_ = false;
    if (moved_) return false;
    if (shown_ && !fit && !lost && contains_points(window_, points, nu_margin, rho_margin)) return false;
    window_ = fit_window(points, nu_margin, rho_margin);
    return true;
}

void PlaneView::show(const PlaneWindow& shown, std::span<const PlanePoint> points) {
    shown_ = shown;
    held_driving_ = !points.empty() && contains_points(shown, points.last(1), 0, 0);
}

PlaneModel build_plane(const Snapshot& snapshot, RowId run_id) {
    PlaneModel model;
    model.kappa_shown = published_kappa;
    model.kappa_text = fmt::format("kappa {:.2f} (SlimSpec, figure 3)", published_kappa);
    const RunRow* run = snapshot.run(run_id);
    if (run == nullptr) {
        model.missing_text = "No run yet. Published results are shown; your head appears after a run.";
        return model;
    }
    const std::vector<HeadComparison> heads = head_costs(snapshot, run_id);
    const HeadComparison* live = nullptr;
    for (const HeadComparison& head : heads) {
        if (head.stats.mode == HeadMode::drive) live = &head;
        if (head.cost.kappa && !model.kappa) model.kappa = head.cost.kappa->value;
    }
    if (model.kappa) {
        model.kappa_shown = *model.kappa;
        model.kappa_text = fmt::format("kappa {:.2f} (this run)", *model.kappa);
    }
    model.softmax_text = softmax_text(snapshot, run_id, live);
    const RunHeadTraits traits(*run);
    add_points(model, heads, traits);
    if (const auto alpha = recorded_alpha(snapshot, *run); alpha && live != nullptr) {
        const auto speedup = compute_speedup(snapshot, run_id, {.resamples = 0});
        for (PlanePoint& point : model.points)
            if (point.mode == HeadMode::drive)
                point.alpha_text = alpha_text(*alpha, live->stats.tau, speedup ? speedup->ratio.value : 0);
    }
    if (run->acceptance == imported_acceptance)
        model.missing_text = "Other engines tell no costs of LM heads, so an import has no point of its own.";
    else if (run->head.empty())
        model.missing_text = "This run has no LM head for drafts, so no point of its own.";
    else if (live == nullptr || !live->cost.nu || !live->cost.rho_tau)
        model.missing_text = missing(live);
    for (const HeadComparison& head : heads) {
        if (head.stats.tau <= 0) continue;  // a few rounds of each text
        std::optional<double> predicted;
        if (head.cost.predicted) predicted = head.cost.predicted->value;
        model.bars.push_back({short_label(head.stats), head.stats.tau_unclipped, predicted, head.estimate,
                              traits.of(head.stats.head).rgb});
    }
    return model;
}

void PlaneOthers::add(PlaneModel& model, const Snapshot& shown, RowId run_id,
                      const std::vector<std::shared_ptr<const Snapshot>>& others) {
    std::vector<const Snapshot*> captures = {&shown};
    for (const auto& other : others)
        if (other != nullptr && other->source != shown.source) captures.push_back(other.get());
    std::vector<std::pair<const Snapshot*, const RunRow*>> runs;
    std::vector<std::tuple<std::string, RowId, std::size_t>> keys;
    for (const Snapshot* capture : captures)
        for (std::size_t r = capture->runs.size(); r-- > 0;) {
            const RunRow& run = capture->runs[r];
            if (run.ended == RunEnd::live || run.head.empty() || is_baseline(run)) continue;
            if (capture == &shown && run.id == run_id) continue;
            runs.emplace_back(capture, &run);
            keys.emplace_back(capture->source, run.id, rounds_of_run(*capture, run.id).size());
        }
    const std::size_t left_out = runs.size() - std::min(runs.size(), max_runs);
    runs.resize(runs.size() - left_out);
    std::vector<PlanePoint> points = points_.get(std::move(keys), [&] {
        std::vector<PlanePoint> made;
        for (const auto& [capture, run] : runs)
            for (PlanePoint& point : points_of_run(*capture, *run, capture == &shown))
                made.push_back(std::move(point));
        return made;
    });
    if (points.empty()) return;
    bool paler = false;
    for (PlanePoint& point : points) {
        point.at_shown_kappa = std::abs(point.kappa - model.kappa_shown) < 0.005 ||
                               (point.kappa_interval && point.kappa_interval->contains(model.kappa_shown));
        paler |= !point.at_shown_kappa;
        model.bars.push_back(
            {point.label, point.tau_unclipped, point.predicted.value, point.estimate, point.rgb, true});
    }
    model.others_text = fmt::format("{} of other runs", format_count(points.size(), "point"));
    if (paler) model.others_text += "; pale: another kappa, so the lines do not hold for it";
    if (left_out > 0) model.others_text += fmt::format("; {} not shown", format_count(left_out, "older run"));
    model.points.insert(model.points.begin(), points.begin(), points.end());
}

std::vector<PublishedGroup> published_groups() {
    std::vector<PublishedGroup> groups;
    for (const PublishedResult& result : published_results()) {
        const std::string name = fmt::format("{}, {}", result.short_name, result.target);
        auto group = std::find_if(groups.begin(), groups.end(),
                                  [&](const PublishedGroup& g) { return g.name == name; });
        if (group == groups.end()) group = groups.insert(groups.end(), PublishedGroup{name, {}});
        group->rows.push_back(&result);
    }
    return groups;
}

std::string published_label(const PublishedResult& result) {
    std::string label = fmt::format("{} {}", result.head, result.config);
    if (label.ends_with(' ')) label.pop_back();
    if (result.tau_kind != "measured") label += fmt::format(" ({})", result.tau_kind);
    return label;
}

std::vector<std::string> describe_published(const PublishedResult& result) {
    std::vector<std::string> lines;
    lines.push_back(published_label(result));
    lines.push_back(number_text("nu", result.nu) + number_text("rho_tau", result.rho_tau) +
                    number_text("tau", result.tau) + number_text("kappa", result.kappa));
    const std::string speed = number_text("speed-up over full", result.speedup_vs_full) +
                              number_text("over AR", result.speedup_vs_ar);
    if (!speed.empty())
        lines.push_back(result.kind == "measured" ? speed : fmt::format("{}({})", speed, result.kind));
    if (result.speedup_vs_ar)
        lines.push_back(result.with_prefill ? "speeds with prefill" : "speeds of decoding");
    lines.push_back(fmt::format("{}; {}", result.target, result.setup));
    lines.push_back(fmt::format("{}: {}", result.short_name, result.source));
    if (!result.derived.empty()) lines.push_back(fmt::format("derived: {}", result.derived));
    return lines;
}

bool is_at_shown_kappa(const PublishedResult& result, const PlaneModel& model) {
    return result.kappa && std::abs(*result.kappa - model.kappa_shown) < 0.005;
}

std::string published_kappa_text(const PublishedResult& result, const PlaneModel& model) {
    if (is_at_shown_kappa(result, model)) return "";
    return fmt::format("paper: kappa {}; lines: {} kappa {:.2f}",
                       result.kappa ? fmt::format("{:.2f}", *result.kappa) : "not given",
                       model.kappa ? "this run's" : "SlimSpec's", model.kappa_shown);
}

std::vector<LabelBox> boxes_around(float x, float y, float gap, float width, float height) {
    const float right = x + gap, left = x - gap - width, above = y - gap - height, below = y + gap;
    std::vector<LabelBox> places;
    for (const auto& [at_x, at_y] : {std::pair{right, above},
                                     {right, y - height / 2},
                                     {left, above},
                                     {left, y - height / 2},
                                     {right, below},
                                     {left, below},
                                     {x - width / 2, above},
                                     {x - width / 2, below},
                                     {right, above - height},
                                     {left, above - height},
                                     {right, below + height},
                                     {left, below + height}})
        places.push_back({at_x, at_y, at_x + width, at_y + height});
    return places;
}

}  // namespace draftscope
