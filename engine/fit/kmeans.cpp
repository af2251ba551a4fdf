#include "engine/fit/kmeans.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/numel.h"
#include "base/rng.h"
#include "engine/fit/linalg.h"

namespace draftscope::fit {
namespace {

constexpr int rows_at_once = 2048;  ///< rows scored at once

/// Spread-out starting centres: each next one is a row drawn with probability proportional to its distance
/// from the nearest so far.
Dense choose_centres(kernels::Backend& backend, const Dense& unit, const KmeansOptions& options) {
    Rng rng(options.seed, 2);
    Dense centres(options.clusters, unit.cols);
    std::vector<double> distance(unit.rows, 2.0);
    auto chosen = static_cast<int>(rng.below(static_cast<std::uint32_t>(unit.rows)));
    Dense cosines;
    for (int c = 0; c < options.clusters; ++c) {
        std::ranges::copy(unit.row(chosen), centres.row(c).begin());
        multiply(backend, pack_rows(backend, centres.view().slice(c, 1)), unit.view(), cosines);
        double total = 0;
        for (std::size_t r = 0; r < distance.size(); ++r) {
            distance[r] = std::min(distance[r], std::max(0.0, 1.0 - static_cast<double>(cosines.data[r])));
            total += distance[r];
        }
        double left = rng.uniform() * total;
        chosen = 0;
        for (std::size_t r = 0; r < distance.size(); ++r) {
            if (distance[r] <= 0) continue;
            chosen = static_cast<int>(r);
            left -= distance[r];
            if (left < 0) break;
        }
    }
    return centres;
}

struct Assignment {
    bool moved = false;
    double objective = 0;
};

Assignment assign(kernels::Backend& backend, const Dense& unit, const Dense& centres,
                  std::vector<std::int32_t>& cluster_of) {
    Assignment result;
    const kernels::Matrix packed = pack_rows(backend, centres.view());
    Dense cosines;
    for (int first = 0; first < unit.rows; first += rows_at_once) {
        const int count = std::min(rows_at_once, unit.rows - first);
        multiply(backend, packed, unit.view().slice(first, count), cosines);
        for (int r = 0; r < count; ++r) {
            const auto row = cosines.row(r);
            const auto best = std::max_element(row.begin(), row.end());
            const auto cluster = static_cast<std::int32_t>(best - row.begin());
            std::int32_t& assigned = cluster_of[first + r];
            result.moved |= assigned != cluster;
            assigned = cluster;
            result.objective += 1.0 - static_cast<double>(*best);
        }
    }
    result.objective /= unit.rows;
    return result;
}

void update(const Dense& unit, const std::vector<std::int32_t>& cluster_of, Dense& centres) {
    const std::size_t width = unit.cols;
    std::vector<double> sums(numel(centres.rows, width));
    for (int r = 0; r < unit.rows; ++r) {
        double* sum = sums.data() + numel(cluster_of[r], width);
        const auto row = unit.row(r);
        for (std::size_t j = 0; j < width; ++j) sum[j] += static_cast<double>(row[j]);
    }
    for (int c = 0; c < centres.rows; ++c) {
        const double* sum = sums.data() + numel(c, width);
        double squares = 0;
        for (std::size_t j = 0; j < width; ++j) squares += sum[j] * sum[j];
        if (squares <= 0) continue;
        const double scale = 1.0 / std::sqrt(squares);
        const auto centre = centres.row(c);
        for (std::size_t j = 0; j < width; ++j) centre[j] = static_cast<float>(sum[j] * scale);
    }
}

}  // namespace

Result<Clusters> spherical_kmeans(kernels::Backend& backend, Rows<const float> weights,
                                  const KmeansOptions& options, const JobHooks& hooks) {
    if (options.clusters < 1 || options.clusters > weights.rows)
        return bad_input("clusters={} for {} tokens; use 1..{}", options.clusters, weights.rows,
                         weights.rows);
    const Dense unit = normalise_rows(weights);
    Clusters result;
    result.centres = choose_centres(backend, unit, options);
    result.cluster_of.assign(unit.rows, -1);
    for (int round = 0; round < options.max_iterations; ++round) {
        DS_TRY(hooks.check());
        hooks.report(static_cast<double>(round) / options.max_iterations, "clustering the vocabulary");
        const Assignment assignment = assign(backend, unit, result.centres, result.cluster_of);
        result.objective.push_back(assignment.objective);
        if (!assignment.moved) break;
        update(unit, result.cluster_of, result.centres);
    }
    return result;
}

std::vector<std::int32_t> balanced_groups(kernels::Backend& backend, Rows<const float> weights,
                                          const Clusters& clusters, const std::vector<std::int32_t>& order) {
    const Dense unit = normalise_rows(weights);
    const int groups = clusters.centres.rows;
    const int capacity = (weights.rows + groups - 1) / groups;
    std::vector<int> used(groups);
    std::vector<std::int32_t> cluster_of(weights.rows, -1);
    const kernels::Matrix centres = pack_rows(backend, clusters.centres.view());
    Dense rows, cosines;
    std::vector<int> preference(groups);
    for (std::size_t first = 0; first < order.size(); first += rows_at_once) {
        const std::size_t count = std::min<std::size_t>(rows_at_once, order.size() - first);
        rows.resize(static_cast<int>(count), unit.cols);
        for (std::size_t i = 0; i < count; ++i)
            std::ranges::copy(unit.row(order[first + i]), rows.row(static_cast<int>(i)).begin());
        multiply(backend, centres, rows.view(), cosines);
        for (std::size_t i = 0; i < count; ++i) {
            const auto cosine = cosines.row(static_cast<int>(i));
            std::iota(preference.begin(), preference.end(), 0);
            std::stable_sort(preference.begin(), preference.end(),
                             [&](int a, int b) { return cosine[a] > cosine[b]; });
            for (const int group : preference) {
                if (used[group] == capacity) continue;
                ++used[group];
                cluster_of[order[first + i]] = group;
                break;
            }
        }
    }
    return cluster_of;
}

}  // namespace draftscope::fit
