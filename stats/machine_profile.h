#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "stats/cost_curve.h"

/// Machine profiles: what the parts of a decoding step cost on a machine with a model. A profile made on one
/// machine predicts step times on another (docs/FORMATS.md, "Machine profiles").
namespace draftscope {

enum class ProfileKind : std::uint8_t {
    measured,   ///< by `draftscope profile-machine`
    estimate,   ///< derived, not measured
    published,  ///< the cost model of a paper
};
std::string_view to_text(ProfileKind kind);

/// A part of a step with a curve of its own.
enum class CostPart : std::uint8_t {
    verify,    ///< target forward and its logits; rows = nodes of the trees
    overhead,  ///< the step without the other parts
    catch_up,  ///< the drafter reads the tokens committed last, level 0; rows = these tokens
    level,     ///< the drafter's layers at each further level
    head,      ///< one call of an LM head with selection of candidates
    draft,     ///< a whole draft including its LM head, in place of the three above
};
std::string_view to_text(CostPart part);

struct PartCost {
    CostPart part = CostPart::verify;
    std::string drafter;         ///< id, or name of a draft model's costs; "" = any
    std::string head;            ///< id; "" unless the part is `head`
    std::string size_parameter;  ///< of the head, "v"; "" = its size was not varied
    CostCurve curve;
};

struct MachineProfile {
    std::string path;  ///< of its file; messages name it
    ProfileKind kind = ProfileKind::measured;
    std::string source;  ///< program version, or the publication
    std::string note;    ///< "" = none
    std::string date;    ///< ISO 8601; "" = unknown
    std::string machine, cpu, isa, gpu;
    int threads = 0;           ///< 0 = unknown
    double clock_mhz = 0;      ///< of the CPU while it was measured; 0 = unknown
    double read_gb_per_s = 0;  ///< memory bandwidth; 0 = unknown
    double other_load = 0;     ///< mean CPUs that other programs used meanwhile
    std::string backend, precision;
    std::string model;
    int vocab = 0, hidden = 0, layers = 0;
    bool synthetic = false;  ///< random weights
    bool complete = true;    ///< false: the measurement was interrupted
    std::vector<PartCost> costs;
    std::vector<std::string> sessions;  ///< measurements that the points come from; a rerun skips them
    /// Mean milliseconds of the control in each session. Empty: measured without one, or not measured.
    std::vector<double> controls;
    std::vector<std::string> skipped;  ///< what could not be measured, with the reason

    /// Returns the median of `controls`, which the points' times are scaled to; 0 = none.
    double control_ms() const;
    /// Returns whether the times are measured, but not against a control: they hold the drift of the machine.
    bool is_uncontrolled() const { return kind == ProfileKind::measured && controls.empty(); }
    /// Returns the costs of a part; null if the profile has none.
    const PartCost* find(CostPart part, std::string_view drafter = {}, std::string_view head = {}) const;
};

/// Reads a profile. Errors name the file, the field and its value.
Result<MachineProfile> read_profile(const std::string& path);
/// Parses a profile's text; `path` is for messages.
Result<MachineProfile> parse_profile(const std::string& text, const std::string& path);
std::string to_json(const MachineProfile& profile);
/// Writes a profile to its path by replacing the file at once.
Status write_profile(const MachineProfile& profile);

/// What readers of an uncontrolled profile must know.
inline constexpr std::string_view no_control_text =
    "the profile was measured without a control: its times hold the drift of the machine";

/// What a profile must agree with. "" and 0 agree with any.
struct ProfileUse {
    std::string backend, precision;
    int vocab = 0;
};
/// Checks whether a profile's costs hold for a model and its backend. An error names the field that differs.
Status check_profile(const MachineProfile& profile, const ProfileUse& use);

/// A decoding step whose time is predicted.
struct StepSetting {
    std::string drafter;          ///< as PartCost::drafter; "" or "none" = no drafter
    std::string head = "full";    ///< id
    double head_size = 0;         ///< value of the head's size parameter; required if it was varied
    std::vector<int> level_rows;  ///< rows of each draft level of one sequence; the first is the root's
    int nodes = 1;                ///< verified rows of one sequence, root included
    double committed = 1;         ///< mean tokens that a round commits
    double catch_up = 0;          ///< mean rows of the drafter's catch-up; 0 = `committed`
    double context = 0;           ///< committed tokens of a sequence
    int batch = 1;
};
/// A cost curve's part of a step.
struct CurveTime {
    std::size_t curve = 0;  ///< place in MachineProfile::costs
    double ms = 0;
    double error = 0;  ///< relative error of the curve; 0 if unknown. With `noise` its misfit
    double rows = 0;   ///< of the calls, which misfit alike; 0 without `noise`, where all calls err alike
    std::vector<double> noise;  ///< CostCurve::noise() of the calls
};
struct StepCost {
    double verify_ms = 0, drafter_ms = 0, head_ms = 0, overhead_ms = 0;
    /// Error of the sum; absent if a part's is unknown. Without a control the parts' errors add up, because
    /// they may hold the same drift.
    std::optional<double> error_ms;
    bool extrapolated = false;      ///< a size lies outside of what was measured
    std::vector<CurveTime> curves;  ///< each curve once for each number of rows

    double total_ms() const { return verify_ms + drafter_ms + head_ms + overhead_ms; }
};
/// Predicts the time of a step. A drafter, head or size that the profile lacks is bad_input, which lists what
/// it has.
Result<StepCost> step_cost(const MachineProfile& profile, const StepSetting& setting);

/// Returns the mean of steps whose weights sum to 1, such as those of rounds with drafts of different length.
struct WeightedStep {
    double weight = 0;
    StepCost cost;
};
StepCost mean_cost(const MachineProfile& profile, std::span<const WeightedStep> steps);

/// Returns the relative error of the ratio of two steps' times. What errs alike in both cancels: the noise of
/// a curve's points, and the misfit of a curve at equal rows.
double ratio_error(std::span<const CurveTime> a, double a_ms, std::span<const CurveTime> b, double b_ms);

}  // namespace draftscope
