#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

/// Fits the time of a part of a decoding step as a non-negative linear function of its sizes.
namespace draftscope {

/// The sizes of one call.
struct CostSizes {
    double rows = 1;           ///< rows of the call, over all sequences
    double batch = 1;          ///< sequences
    double context = 0;        ///< committed tokens of each sequence
    double size = 0;           ///< value of the head's size parameter; 0 = none
    bool first_level = false;  ///< a head's call at draft level 0
    double verify_ms = 0;      ///< time of the step's verification
};

/// A quantity that a time grows with.
enum class CostTerm : std::uint8_t {
    fixed,             ///< 1 for each call
    first_level,       ///< 1 for a head's call at level 0, which may prepare the round's shortlist
    sequence,          ///< sequences
    row,               ///< rows
    row_over_4,        ///< rows above 4, where a product stops being bound by reading its weights
    row_over_16,       ///< rows above 16
    cached,            ///< keys and values read: batch x context
    row_context,       ///< attention: rows x context
    node,              ///< rows of one sequence
    size,              ///< the head's size
    size_first_level,  ///< the head's size, at level 0
    size_row,          ///< size x rows
    verify,            ///< milliseconds of the step's verification
};
std::string_view to_text(CostTerm term);
std::optional<CostTerm> parse_cost_term(std::string_view text);
double value_of(CostTerm term, const CostSizes& sizes);

/// A measured time.
struct CostPoint {
    CostSizes at;
    double ms = 0;      ///< mean of the samples relative to their controls; in older profiles their median
    double spread = 0;  ///< interquartile range of the samples, relative to their median
    int samples = 0;
};

/// A time and that of the control around it, which the same machine took at the same speed.
struct ControlledTime {
    double ms = 0, control_ms = 0;
};
/// Returns the ratio of the sums as the point's `ms`, in units of the control. A phase in which the machine
/// is slow lengthens both sums.
CostPoint controlled_point(const CostSizes& at, std::span<const ControlledTime> times);

/// Milliseconds per unit of a term.
struct TermCost {
    CostTerm term = CostTerm::fixed;
    double ms = 0;
};

/// How far the times of calls with equal rows lie from the sum of the terms.
struct RowFit {
    bool first_level = false;
    double rows = 0;
    double residual = 0;  ///< relative, towards 0 as far as the points are unsure
    double share = 0;     ///< weight of the points against the terms; 0 to 1
    double error = 0;     ///< relative
};

/// A fitted curve with its measured points. Published and estimated curves may lack points and errors.
struct CostCurve {
    std::vector<TermCost> terms;
    std::optional<double> error;  ///< root of the mean squared relative residual, per degree of freedom
    std::optional<double> worst;  ///< largest relative residual
    std::vector<CostPoint> points;
    // What explain_residuals() finds:
    double point_error = 0;        ///< relative error of a point: how repeated measurements differ
    double misfit = 0;             ///< relative error of the terms beyond that of the points
    std::vector<double> factor;    ///< Cholesky factor [terms, terms] of the fit's normal equations
    std::vector<RowFit> row_fits;  ///< in ascending order; empty if the points have sizes

    double ms(const CostSizes& sizes) const;
    /// Returns the time without what `row_fits` add.
    double sum_of_terms(const CostSizes& sizes) const;
    /// Returns the relative error of ms() that calls of other rows do not share.
    double own_error(const CostSizes& sizes) const { return row_fit(sizes).error; }
    /// Returns a vector whose squared length is the variance of ms() that its terms have from the points'
    /// errors. Vectors of several sizes add up. Empty without `factor`.
    std::vector<double> noise(const CostSizes& sizes) const;
    /// Splits the residuals of the points into error of the points and misfit of the terms. The points were
    /// measured repeatedly and against a control. Does nothing if `error` is unknown.
    void explain_residuals();
    /// Returns whether rows, batch, context and size lie within those of the points. True without points.
    bool covers(const CostSizes& sizes) const;

  private:
    /// Interpolates between the measured rows.
    RowFit row_fit(const CostSizes& sizes) const;
    void set_factor();
};

/// Fits `terms` to `points` with coefficients of at least 0, so that the squared relative residuals are
/// least. They are relative to the geometric mean of measured and fitted time. Terms with coefficient 0 are
/// left out. At most 10 terms; points with a time of 0 are dropped.
CostCurve fit_curve(std::span<const CostTerm> terms, std::vector<CostPoint> points);

}  // namespace draftscope
