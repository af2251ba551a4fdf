#pragma once

#include <cstdint>
#include <vector>

#include "base/job_hooks.h"
#include "base/result.h"
#include "engine/fit/dense.h"
#include "kernels/backend.h"

namespace draftscope::fit {

struct Clusters {
    std::vector<std::int32_t> cluster_of;  ///< [V] cluster of each row
    Dense centres;                         ///< [clusters, d], unit length
    std::vector<double> objective;  ///< mean (1 - cosine to its centre) before each update; never increases
};

struct KmeansOptions {
    int clusters = 64;
    int max_iterations = 30;  ///< our default; stops earlier if no row changes its cluster
    std::uint64_t seed = 0;   ///< for the starting centres (k-means++ on the sphere)
};

/// Spherical k-means over the rows of `weights`, scaled to unit length (DynaSpec, arXiv 2510.13847, section
/// 4.2). The clusters are unbalanced on purpose. Ties go to the lower cluster; a cluster that loses all rows
/// keeps its centre. 1 <= clusters <= rows, else bad_input.
Result<Clusters> spherical_kmeans(kernels::Backend& backend, Rows<const float> weights,
                                  const KmeansOptions& options, const JobHooks& hooks);

/// Assigns each row, in the order of `order`, to the nearest centre with fewer than ceil(rows / clusters)
/// rows. These are the equal groups of CORAL (arXiv 2502.16880), whose grouping rule is not published; our
/// default. `order` contains every row once.
std::vector<std::int32_t> balanced_groups(kernels::Backend& backend, Rows<const float> weights,
                                          const Clusters& clusters, const std::vector<std::int32_t>& order);

}  // namespace draftscope::fit
