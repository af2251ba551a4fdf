#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "profiler/head_costs.h"

/// What the Acceptance-cost plane draws: each head as a point (nu, rho_tau) over lines of equal speed-up.
/// Model of the plane: SlimSpec, section 3.2.
namespace draftscope {

struct PlaneWindow {
    double nu_min = 0, nu_max = 1.1, rho_min = 0.7, rho_max = 1.1;
};
struct IsoLine {
    double speedup = 1;
    double nu[2] = {0, 0}, rho[2] = {0, 0};  ///< ends, inside the window
};
/// Lines of equal speed-up that cross the window, at round levels, at most 12; 1.0 is among them when it
/// crosses.
std::vector<IsoLine> iso_lines(double kappa, const PlaneWindow& window);

struct PlanePoint {
    std::string head;   ///< spec
    std::string label;  ///< short
    HeadMode mode = HeadMode::drive;
    double nu = 1, rho_tau = 1;
    double tau = 0;  ///< over all rounds of the run, by estimate where the head was in some of them
    std::optional<Interval> nu_interval, rho_interval;  ///< 95 %, bootstrap
    bool reference = false;                             ///< the full head: (1, 1) by definition
    bool estimate = false;  ///< aligned shadow, or measured against calibration rounds: drawn hollow
    Estimate predicted;     ///< speed-up against the full head
    std::optional<Estimate> measured;     ///< where another run has the full head on the same prompts
    std::optional<Estimate> unexplained;  ///< measured - predicted
    double break_even_rho_tau = 1;        ///< at this nu
    std::optional<double> break_even_nu;  ///< at this rho_tau
    std::int64_t rounds = 0;
    double active_rows = 0;
    std::string reads_text;  ///< bytes of a round, and T_head against what the probes explain by them
};

/// Acceptance alone: heads whose cost is not known have their place here.
struct TauBar {
    std::string label, head;
    double tau = 0;                   ///< as PlanePoint::tau
    std::optional<double> predicted;  ///< speed-up against the full head
    bool live = false, estimate = false;
};

/// Axes that hold every point with its whole mark. The margins are a mark's radius as parts of the plot's
/// width and height.
PlaneWindow fit_window(std::span<const PlanePoint> points, double nu_margin, double rho_margin);
/// Whether the window holds these points with their marks.
bool holds(const PlaneWindow& window, std::span<const PlanePoint> points, double nu_margin,
           double rho_margin);

/// The axes' range: it follows the points until the user moves it, and again when the driving head's point
/// would leave the view by itself. That head is the last one.
class PlaneView {
  public:
    /// Before drawing; `fit` asks for the points. True when the axes are to be set to window().
    bool follow(std::span<const PlanePoint> points, double nu_margin, double rho_margin, bool fit);
    /// After drawing: what the axes show.
    void show(const PlaneWindow& shown, std::span<const PlanePoint> points);
    const PlaneWindow& window() const { return window_; }

  private:
    PlaneWindow window_;
    std::optional<PlaneWindow> shown_;
    bool moved_ = false, held_driving_ = false;
};

struct PlaneModel {
    std::string empty_text;          ///< no head has been measured at all
    std::string missing_text;        ///< why the live head has no point, "" when it has one
    std::optional<double> kappa;     ///< of the run
    double kappa_shown = 0;          ///< of the run, else the published one
    std::string kappa_text;          ///< "kappa 0.25 (this run)"
    std::string interval_text;       ///< how the intervals were made, or why there are none
    std::vector<PlanePoint> points;  ///< the live head last, so that it is drawn on top
    std::vector<TauBar> bars;
};
PlaneModel build_plane(const Snapshot& snapshot, RowId run_id);

/// One row of a paper's table. Optional: the paper does not give it.
struct PublishedResult {
    std::string_view paper, short_name, citation, note;
    std::string_view head, config, target, setup, source;
    std::string_view derived;  ///< "" or what was computed from the tables, and how
    std::optional<double> tau, rho_tau, nu, speedup_vs_ar, speedup_vs_full;
    std::optional<double> kappa;
};
/// From assets/published, put into the program when it is built.
std::span<const PublishedResult> published_results();
/// "SlimSpec, Llama-3.1-8B-Instruct": results that may be compared with each other.
struct PublishedGroup {
    std::string name;
    std::vector<const PublishedResult*> rows;
};
std::vector<PublishedGroup> published_groups();
/// Lines for the tooltip: head, numbers, setup, source, what is derived.
std::vector<std::string> describe_published(const PublishedResult& result);
/// Whether the result was measured at the kappa that the lines are drawn for.
bool is_at_shown_kappa(const PublishedResult& result, const PlaneModel& model);
/// "paper: kappa 0.25; lines: this run's kappa 0.38"; "" when they are the same.
std::string published_kappa_text(const PublishedResult& result, const PlaneModel& model);

}  // namespace draftscope
