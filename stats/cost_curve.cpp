#include "stats/cost_curve.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <map>
#include <tuple>

namespace draftscope {
namespace {

/// A term's name in files and its value. In the order of CostTerm.
struct Term {
    std::string_view name;
    double (*value)(const CostSizes&);
};
constexpr Term all_terms[] = {
    {"fixed", [](const CostSizes&) { return 1.0; }},
    {"first_level", [](const CostSizes& of) { return of.first_level ? 1.0 : 0.0; }},
    {"sequence", [](const CostSizes& of) { return of.batch; }},
    {"row", [](const CostSizes& of) { return of.rows; }},
    {"row_over_4", [](const CostSizes& of) { return std::max(0.0, of.rows - 4); }},
    {"row_over_16", [](const CostSizes& of) { return std::max(0.0, of.rows - 16); }},
    {"cached", [](const CostSizes& of) { return of.batch * of.context; }},
    {"row_context", [](const CostSizes& of) { return of.rows * of.context; }},
    {"node", [](const CostSizes& of) { return of.rows / of.batch; }},
    {"size", [](const CostSizes& of) { return of.size; }},
    {"size_first_level", [](const CostSizes& of) { return of.first_level ? of.size : 0.0; }},
    {"size_row", [](const CostSizes& of) { return of.size * of.rows; }},
    {"verify", [](const CostSizes& of) { return of.verify_ms; }},
};

constexpr int max_terms = 10;
using Vector = std::array<double, max_terms>;

/// The normal equations of a weighted fit. Columns are scaled to length 1.
struct NormalEquations {
    int terms = 0;
    std::array<Vector, max_terms> product{};
    Vector right{};
    Vector length{};
    double constant = 0;
};

/// `weights` are those of the points' squared residuals.
NormalEquations make_equations(std::span<const CostTerm> terms, std::span<const CostPoint> points,
                               std::span<const double> weights) {
    NormalEquations out;
    out.terms = static_cast<int>(terms.size());
    for (std::size_t p = 0; p < points.size(); ++p) {
        const CostPoint& point = points[p];
        Vector row{};
        for (int i = 0; i < out.terms; ++i) row[i] = value_of(terms[i], point.at);
        for (int i = 0; i < out.terms; ++i) {
            out.right[i] += weights[p] * row[i] * point.ms;
            for (int j = 0; j < out.terms; ++j) out.product[i][j] += weights[p] * row[i] * row[j];
        }
        out.constant += weights[p] * point.ms * point.ms;
    }
    for (int i = 0; i < out.terms; ++i) out.length[i] = std::sqrt(out.product[i][i]);
    for (int i = 0; i < out.terms; ++i) {
        if (out.length[i] == 0) continue;
        out.right[i] /= out.length[i];
        for (int j = 0; j < out.terms; ++j)
            if (out.length[j] > 0) out.product[i][j] /= out.length[i] * out.length[j];
    }
    return out;
}

/// Solves the equations of the terms in `chosen` (bits) by elimination. Absent if they are dependent or a
/// coefficient is negative. Other coefficients are 0.
std::optional<Vector> solve(const NormalEquations& equations, unsigned chosen) {
    std::array<int, max_terms> index{};
    int n = 0;
    for (int i = 0; i < equations.terms; ++i)
        if ((chosen >> i & 1u) != 0) index[n++] = i;
    std::array<std::array<double, max_terms + 1>, max_terms> rows{};
    for (int i = 0; i < n; ++i) {
        for (int j = 0; j < n; ++j) rows[i][j] = equations.product[index[i]][index[j]];
        rows[i][n] = equations.right[index[i]];
    }
    constexpr double dependent = 1e-9;
    for (int i = 0; i < n; ++i) {
        if (rows[i][i] < dependent) return std::nullopt;
        for (int k = i + 1; k < n; ++k) {
            const double factor = rows[k][i] / rows[i][i];
            for (int j = i; j <= n; ++j) rows[k][j] -= factor * rows[i][j];
        }
    }
    Vector found{};
    for (int i = n; i-- > 0;) {
        double value = rows[i][n];
        for (int j = i + 1; j < n; ++j) value -= rows[i][j] * found[index[j]];
        value /= rows[i][i];
        if (value < 0) return std::nullopt;
        found[index[i]] = value;
    }
    return found;
}

double squared_residual(const NormalEquations& equations, const Vector& x) {
    double sum = equations.constant;
    for (int i = 0; i < equations.terms; ++i) {
        sum -= 2 * x[i] * equations.right[i];
        for (int j = 0; j < equations.terms; ++j) sum += x[i] * x[j] * equations.product[i][j];
    }
    return std::max(0.0, sum);
}

/// Returns the terms with the least weighted residual. The constrained optimum is the unconstrained one of
/// its positive terms, so every subset is tried.
std::vector<TermCost> fit_terms(std::span<const CostTerm> terms, const NormalEquations& equations) {
    // Fewer terms are preferred where more explain nothing.
    const double gain = 1e-9 * equations.constant;
    std::optional<Vector> best;
    double least = equations.constant;
    for (int count = 1; count <= equations.terms; ++count) {
        for (unsigned chosen = 1; chosen < 1u << equations.terms; ++chosen) {
            if (std::popcount(chosen) != count) continue;
            const auto found = solve(equations, chosen);
            if (!found) continue;
            const double residual = squared_residual(equations, *found);
            if (best && residual > least - gain) continue;
            best = found;
            least = residual;
        }
    }
    std::vector<TermCost> fitted;
    for (int i = 0; best && i < equations.terms; ++i)
        if ((*best)[i] > 0) fitted.push_back({terms[i], (*best)[i] / equations.length[i]});
    return fitted;
}

/// Returns the time that a squared residual is divided by, twice. Of measured and fitted time it is the
/// geometric mean: relative to the measured time alone, fits that are too low would cost less than those too
/// high.
double residual_unit(const CostCurve& curve, const CostPoint& point) {
    return std::sqrt(point.ms * std::max(curve.sum_of_terms(point.at), 1e-3 * point.ms));
}

/// Sets the errors of a curve from its points.
void set_errors(CostCurve& curve) {
    double squares = 0, worst = 0;
    for (const CostPoint& point : curve.points) {
        const double residual = curve.sum_of_terms(point.at) - point.ms, unit = residual_unit(curve, point);
        squares += residual * residual / (unit * unit);
        worst = std::max(worst, std::abs(residual) / point.ms);
    }
    if (curve.points.empty()) return;
    curve.worst = worst;
    if (curve.points.size() > curve.terms.size())
        curve.error = std::sqrt(squares / static_cast<double>(curve.points.size() - curve.terms.size()));
}

/// Residuals of the points of one size, relative to the fit.
struct ResidualGroup {
    std::size_t count = 0;
    double sum = 0, squares = 0;
    double mean() const { return sum / static_cast<double>(count); }
};

/// Returns the misfit whose variance, added to that of the groups' means, explains their squares (Paule and
/// Mandel's estimate of a variance between groups).
double find_misfit(std::span<const ResidualGroup> groups, double point_error, double degrees) {
    const auto explained = [&](double misfit) {
        double sum = 0;
        for (const ResidualGroup& one : groups)
            sum += one.mean() * one.mean() /
                   (misfit * misfit + point_error * point_error / static_cast<double>(one.count));
        return sum;
    };
    double low = 0, high = 10;
    if (degrees <= 0 || explained(1e-6) <= degrees) return 0;
    for (int i = 0; i < 50; ++i) {
        const double middle = 0.5 * (low + high);
        (explained(middle) > degrees ? low : high) = middle;
    }
    return high;
}

}  // namespace

std::string_view to_text(CostTerm term) {
    return all_terms[static_cast<std::size_t>(term)].name;
}

std::optional<CostTerm> parse_cost_term(std::string_view text) {
    const auto found = std::ranges::find(all_terms, text, &Term::name);
    if (found == std::end(all_terms)) return std::nullopt;
    return static_cast<CostTerm>(found - all_terms);
}

double value_of(CostTerm term, const CostSizes& sizes) {
    return all_terms[static_cast<std::size_t>(term)].value(sizes);
}

double CostCurve::ms(const CostSizes& sizes) const {
    return sum_of_terms(sizes) * (1 + row_fit(sizes).residual);
}

double CostCurve::sum_of_terms(const CostSizes& sizes) const {
    double sum = 0;
    for (const TermCost& one : terms) sum += one.ms * value_of(one.term, sizes);
    return sum;
}

void CostCurve::explain_residuals() {
    point_error = misfit = error.value_or(0);
    factor.clear();
    row_fits.clear();
    if (!error) return;
    std::map<std::tuple<double, bool, double>, ResidualGroup> by_size;
    for (const CostPoint& point : points) {
        ResidualGroup& group = by_size[{point.at.size, point.at.first_level, point.at.rows}];
        const double residual = point.ms / sum_of_terms(point.at) - 1;
        ++group.count;
        group.sum += residual;
        group.squares += residual * residual;
    }
    const auto repeated = static_cast<double>(points.size() - by_size.size());
    if (repeated > 0) {
        double squares = 0;
        std::vector<ResidualGroup> groups;
        for (const auto& [key, group] : by_size) {
            groups.push_back(group);
            squares += group.squares - group.sum * group.mean();
        }
        point_error = std::sqrt(std::max(squares, 0.0) / repeated);
        misfit = find_misfit(groups, point_error,
                             static_cast<double>(groups.size()) - static_cast<double>(terms.size()));
        const bool sized = std::ranges::any_of(points, [](const CostPoint& one) { return one.at.size != 0; });
        for (const auto& [key, group] : by_size) {
            const double variance = point_error * point_error / static_cast<double>(group.count);
            const double share = misfit > 0 ? misfit * misfit / (misfit * misfit + variance) : 0;
            if (!sized)
                row_fits.push_back({std::get<1>(key), std::get<2>(key), share * group.mean(), share,
                                    misfit * std::sqrt(1 - share)});
        }
    }
    set_factor();
}

void CostCurve::set_factor() {
    const std::size_t n = terms.size();
    factor.assign(n * n, 0);
    for (const CostPoint& point : points) {
        const double unit = std::max(std::hypot(misfit, point_error), 1e-9) * residual_unit(*this, point);
        for (std::size_t i = 0; i < n; ++i)
            for (std::size_t j = 0; j <= i; ++j)
                factor[i * n + j] +=
                    value_of(terms[i].term, point.at) / unit * value_of(terms[j].term, point.at) / unit;
    }
    for (std::size_t i = 0; i < n; ++i)
        for (std::size_t j = 0; j <= i; ++j) {
            double& entry = factor[i * n + j];
            const double least = 1e-12 * entry;  // of a diagonal entry; rounded points may make it 0
            for (std::size_t k = 0; k < j; ++k) entry -= factor[i * n + k] * factor[j * n + k];
            entry = i == j ? std::sqrt(std::max(entry, least)) : entry / factor[j * n + j];
        }
}

RowFit CostCurve::row_fit(const CostSizes& sizes) const {
    const auto alike = std::ranges::equal_range(row_fits, sizes.first_level, {}, &RowFit::first_level);
    if (alike.empty()) return {sizes.first_level, sizes.rows, 0, 0, misfit};
    const auto above = std::ranges::lower_bound(alike, sizes.rows, {}, &RowFit::rows);
    if (above == alike.begin()) return alike.front();
    if (above == alike.end()) return alike.back();
    const RowFit &low = *(above - 1), &high = *above;
    const double part = (sizes.rows - low.rows) / (high.rows - low.rows);
    RowFit out = high;
    out.residual = std::lerp(low.residual, high.residual, part);
    out.share = std::lerp(low.share, high.share, part);
    // Between measured rows the misfit is less known, as of a random walk with known ends.
    out.error = std::hypot(std::lerp(low.error, high.error, part), misfit * std::sqrt(2 * part * (1 - part)));
    return out;
}

std::vector<double> CostCurve::noise(const CostSizes& sizes) const {
    std::vector<double> out;
    const std::size_t n = factor.empty() ? 0 : terms.size();
    const double share = row_fit(sizes).share;
    for (std::size_t i = 0; i < n; ++i) {
        double value = (1 - share) * value_of(terms[i].term, sizes);
        for (std::size_t k = 0; k < i; ++k) value -= factor[i * n + k] * out[k];
        out.push_back(value / factor[i * n + i]);
    }
    return out;
}

bool CostCurve::covers(const CostSizes& sizes) const {
    const auto within = [&](double CostSizes::*member) {
        const auto [low, high] = std::minmax_element(
            points.begin(), points.end(),
            [&](const CostPoint& a, const CostPoint& b) { return a.at.*member < b.at.*member; });
        return sizes.*member >= low->at.*member && sizes.*member <= high->at.*member;
    };
    return points.empty() || (within(&CostSizes::rows) && within(&CostSizes::batch) &&
                              within(&CostSizes::context) && within(&CostSizes::size));
}

CostPoint controlled_point(const CostSizes& at, std::span<const ControlledTime> times) {
    CostPoint out;
    out.at = at;
    out.samples = static_cast<int>(times.size());
    double ms = 0, control_ms = 0;
    std::vector<double> ratios;
    for (const ControlledTime& one : times) {
        ms += one.ms;
        control_ms += one.control_ms;
        ratios.push_back(one.ms / one.control_ms);
    }
    if (!(ms > 0) || !(control_ms > 0)) return out;
    out.ms = ms / control_ms;
    std::sort(ratios.begin(), ratios.end());
    const std::size_t n = ratios.size();
    out.spread = (ratios[3 * n / 4] - ratios[n / 4]) / ratios[n / 2];
    return out;
}

CostCurve fit_curve(std::span<const CostTerm> terms, std::vector<CostPoint> points) {
    std::erase_if(points, [](const CostPoint& point) { return !(point.ms > 0); });
    CostCurve curve;
    curve.points = std::move(points);
    terms = terms.first(std::min(terms.size(), std::size_t{max_terms}));
    std::vector<double> weights;
    for (const CostPoint& point : curve.points) weights.push_back(1 / (point.ms * point.ms));
    constexpr int rounds = 8;  // the weights depend on the fit
    for (int round = 0; round < rounds; ++round) {
        curve.terms = fit_terms(terms, make_equations(terms, curve.points, weights));
        for (std::size_t p = 0; p < weights.size(); ++p) {
            const double unit = residual_unit(curve, curve.points[p]);
            weights[p] = 1 / (unit * unit);
        }
    }
    set_errors(curve);
    curve.explain_residuals();
    return curve;
}

}  // namespace draftscope
