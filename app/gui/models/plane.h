#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "app/gui/models/cached_model.h"
#include "capture/capture.h"
#include "capture/queries.h"
#include "stats/head_costs.h"

/// Model of the Acceptance-cost plane: each head as a point (nu, rho_tau) over lines of equal speed-up
/// (SlimSpec, section 3.2).
namespace draftscope {

struct LabelBox {
    float left = 0, top = 0, right = 0, bottom = 0;

    bool overlaps(const LabelBox& other) const {
        return left < other.right && other.left < right && top < other.bottom && other.top < bottom;
    }
    bool inside(const LabelBox& frame) const {
        return left >= frame.left && top >= frame.top && right <= frame.right && bottom <= frame.bottom;
    }
};

/// Keeps the occupied boxes inside a frame.
class LabelPlacer {
  public:
    explicit LabelPlacer(LabelBox frame) : frame_(frame) {}

    void take(LabelBox box) { taken_.push_back(box); }
    /// Occupies and returns the first candidate that is free and inside the frame, if any. `always`: if none
    /// is free, the first one inside the frame.
    std::optional<LabelBox> place(const std::vector<LabelBox>& candidates, bool always = false) {
        for (const bool any : {false, true})
            for (const LabelBox& box : candidates)
                if (box.inside(frame_) && (any ? always : is_free(box))) {
                    take(box);
                    return box;
                }
        return std::nullopt;
    }

  private:
    bool is_free(const LabelBox& box) const {
        return std::ranges::none_of(taken_, [&](const LabelBox& other) { return box.overlaps(other); });
    }

    LabelBox frame_;
    std::vector<LabelBox> taken_;
};

/// Returns candidate boxes around a mark of radius `gap`: upper right first, then the other corners and
/// sides.
std::vector<LabelBox> boxes_around(float x, float y, float gap, float width, float height);

/// Bounds of alpha, the sum of min(p, q) over all tokens (SlimSpec, arXiv 2605.10453, section 4.2). It is a
/// mean over the root and the accepted nodes that have drafts. A node's drafts give a part of its sum; what
/// the distributions have left of 1 bounds the rest.
struct AlphaBounds {
    double low = 0, high = 0;
    std::int64_t positions = 0;
    int drafts = 0;      ///< depth of the deepest tree
    bool chains = true;  ///< every tree is a chain
};
/// Returns the bounds for the run's driving head. Absent without recorded trees, for trees that stay in their
/// file, and at temperatures other than 0 and 1: there the draft's and the target's differ.
std::optional<AlphaBounds> recorded_alpha(const Snapshot& snapshot, const RunRow& run);

/// Returns "alpha 0.71 to 0.74 ...; eq. 1: 3.2 to 3.4 tokens ...". `tau` and `speedup`, over plain decoding,
/// are the run's; both are 0 if unknown. For chains they give the speed-up of eq. 2, whose costs are the
/// run's (DynaSpec, arXiv 2510.13847).
std::string alpha_text(const AlphaBounds& alpha, double tau, double speedup);

/// Range of the axes.
struct PlaneWindow {
    double nu_min = 0, nu_max = 1.1, rho_min = 0.7, rho_max = 1.1;
};
/// A line of equal speed-up.
struct IsoLine {
    double speedup = 1;
    double nu[2] = {0, 0}, rho[2] = {0, 0};  ///< end points, inside the window
};
/// Returns at most 12 lines of equal speed-up that cross the window, at round values. If the break-even line
/// crosses the window, it is included.
std::vector<IsoLine> iso_lines(double kappa, const PlaneWindow& window);

/// A head on the plane. The statistics are over all its rounds; tau is 0 for calibration, in only some.
struct PlanePoint : HeadStats {
    std::string label;  ///< short name; of another run, with the run: "full.dscope 2: fr-spec"
    std::string run;    ///< of another run: its full name; "" = the shown run
    std::uint32_t rgb = 0;
    double nu = 1, rho_tau = 1;
    double kappa = 0;  ///< of its own run
    std::optional<Interval> kappa_interval;
    bool at_shown_kappa = true;                         ///< false: the lines do not hold for it; drawn paler
    std::optional<Interval> nu_interval, rho_interval;  ///< 95 %, bootstrap
    bool reference = false;                             ///< full head: (1, 1) by definition
    bool estimate = false;                ///< aligned shadow or calibration rounds; drawn hollow
    bool path_candidates = false;         ///< an estimate: HeadComparison::path_candidates
    Estimate predicted;                   ///< speed-up over the full head, from the model
    std::optional<Estimate> measured;     ///< from another run with the full head on the same prompts
    std::optional<Estimate> unexplained;  ///< measured - predicted
    double break_even_rho_tau = 1;        ///< at this nu
    std::optional<double> break_even_nu;  ///< at this rho_tau
    std::string size_text;                ///< describe_shortlist()
    std::string reads_text;               ///< bytes per round, and T_head / time at probe bandwidth
    std::string alpha_text;  ///< of the driving head, with DynaSpec's eq. 1 and 2; "" = not recorded
};

struct PublishedResult;

/// Bar of tau, also for heads of unknown cost.
struct TauBar {
    std::string label = {};
    double tau = 0;                        ///< PlanePoint::tau_unclipped, next to published values
    std::optional<double> predicted = {};  ///< speed-up over the full head
    bool estimate = false;
    std::uint32_t rgb = 0;
    bool other_run = false;
    const PublishedResult* published = nullptr;  ///< null = of a run
};

/// Returns axes that contain every point with its mark. The margins are a mark's radius as fractions of the
/// plot's width and height.
PlaneWindow fit_window(std::span<const PlanePoint> points, double nu_margin, double rho_margin);
/// Returns true if the window contains these points with their marks.
bool contains_points(const PlaneWindow& window, std::span<const PlanePoint> points, double nu_margin,
                     double rho_margin);

/// Range of the axes. It follows the points until the user moves it. If the driving head's point (the last
/// one) leaves the view by itself, the range follows again.
class PlaneView {
  public:
    /// Call before drawing. `fit` requests all points. Returns true if the axes must be set to window().
    bool follow(std::span<const PlanePoint> points, double nu_margin, double rho_margin, bool fit);
    /// Call after drawing, with the range that the axes show.
    void show(const PlaneWindow& shown, std::span<const PlanePoint> points);
    const PlaneWindow& window() const { return window_; }

  private:
    PlaneWindow window_;
    std::optional<PlaneWindow> shown_;
    bool moved_ = false, held_driving_ = false;
};

struct PlaneModel {
    std::string missing_text;        ///< why the driving head has no point; "" if it has one
    std::optional<double> kappa;     ///< of the run
    double kappa_shown = 0;          ///< of the run, otherwise the published value
    std::string kappa_text;          ///< "kappa 0.25 (this run)"
    std::string softmax_text;        ///< that T_head has the softmax; its share where it is measured
    std::string interval_text;       ///< method of the intervals, or why there are none
    std::string others_text;         ///< of the other runs' points; "" without any
    std::vector<PlanePoint> points;  ///< other runs first, the driving head last (drawn on top)
    std::vector<TauBar> bars;
};
PlaneModel build_plane(const Snapshot& snapshot, RowId run_id);

/// Adds the heads of other runs to a plane.
class PlaneOthers {
  public:
    static constexpr std::size_t max_runs = 12;

    /// Adds the newest ended runs with heads other than the full one. Those of the shown capture come first,
    /// then those of the other open ones. Points are computed again when a run is new or was read further.
    void add(PlaneModel& model, const Snapshot& shown, RowId run_id,
             const std::vector<std::shared_ptr<const Snapshot>>& others);

  private:
    /// By source, run and the number of its rounds.
    CachedModel<std::vector<PlanePoint>, std::vector<std::tuple<std::string, RowId, std::size_t>>> points_;
};

/// A result's figures of one task, named as task_of_category() names it.
struct PublishedTask {
    std::string_view name;
    std::optional<double> tau, speedup_vs_ar, tokens_per_second;
    std::optional<double> plain_tokens_per_second;  ///< of the paper's autoregressive decoding

    /// Returns whether the speed-up is not in the paper but the ratio of two of its speeds.
    bool is_derived() const { return !speedup_vs_ar && tokens_per_second && plain_tokens_per_second; }
    std::optional<double> speedup() const {
        return is_derived() ? *tokens_per_second / *plain_tokens_per_second : speedup_vs_ar;
    }
};
/// One row of a paper's table. Absent values are not given in the paper.
struct PublishedResult {
    std::string_view paper, short_name, citation, note;
    std::string_view head, config, target, setup, source;
    std::string_view derived;  ///< what was computed from the tables, and how; may be ""
    /// "measured", "computed" (by the paper's authors from other rows) or "copied" (from another paper).
    std::string_view kind, tau_kind;
    std::optional<double> tau, rho_tau, nu, speedup_vs_ar, speedup_vs_full;
    std::optional<double> kappa;  ///< of the setup in which nu and rho_tau were measured
    bool with_prefill = false;    ///< whether the speeds include the prefill, or are taken to
    std::span<const PublishedTask> tasks;
};
/// Returns the results of assets/published, compiled into the program.
std::span<const PublishedResult> published_results();
/// Comparable results, named "SlimSpec, Llama-3.1-8B-Instruct".
struct PublishedGroup {
    std::string name;
    std::vector<const PublishedResult*> rows;
};
std::vector<PublishedGroup> published_groups();
/// Returns "coral V=32k (copied)": head, configuration, and the kind of its tau if the authors did not
/// measure it.
std::string published_label(const PublishedResult& result);
/// Returns the tooltip's lines: head, numbers with their kappa, setup, source, derivation.
std::vector<std::string> describe_published(const PublishedResult& result);
/// Returns true if the result was measured at the kappa of the drawn lines.
bool is_at_shown_kappa(const PublishedResult& result, const PlaneModel& model);
/// Returns "paper: kappa 0.25; lines: this run's kappa 0.38"; "" if both are equal.
std::string published_kappa_text(const PublishedResult& result, const PlaneModel& model);

}  // namespace draftscope
