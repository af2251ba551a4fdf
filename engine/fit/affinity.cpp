#include "engine/fit/affinity.h"

#include <algorithm>
#include <cmath>

#include "base/numel.h"
#include "engine/fit/linalg.h"

namespace draftscope::fit {

Result<AffinityMatrix> token_affinity(kernels::Backend& backend, Rows<const float> weights,
                                      const AffinityOptions& options, const JobHooks& hooks) {
    if (options.width < 2 || options.width > weights.rows)
        return bad_input("neighbours={} for {} tokens; use 2..{}", options.width, weights.rows, weights.rows);
    if (options.keep < 0 || options.keep > 1)
        return bad_input("keep={}: a share of probability is from 0 to 1", options.keep);
    if (options.temperature <= 0) return bad_input("temperature={}: must be above 0", options.temperature);
    const Dense unit = normalise_rows(weights);
    const kernels::Matrix tokens = pack_rows(backend, unit.view());
    AffinityMatrix result;
    result.width = options.width;
    Dense cosines;
    BestColumns best;
    constexpr int block = 256;
    for (int first = 0; first < unit.rows; first += block) {
        DS_TRY(hooks.check());
        hooks.report(static_cast<double>(first) / unit.rows, "nearest tokens");
        const int count = std::min(block, unit.rows - first);
        multiply(backend, tokens, unit.view().slice(first, count), cosines);
        // A value above every cosine, so that a token with equal weights cannot take the token's own place.
        for (int r = 0; r < count; ++r) cosines.row(r)[first + r] = 2.0f;
        best.find(backend, cosines.view(), options.width);
        for (int r = 0; r < count; ++r) {
            const auto values = best.values.row(r);
            std::vector<double> shares(values.size());
            double total = 0;
            for (std::size_t j = 1; j < values.size(); ++j) {
                shares[j] = std::exp((static_cast<double>(values[j]) - static_cast<double>(values[1])) /
                                     options.temperature);
                total += shares[j];
            }
            shares[0] = options.keep;
            for (std::size_t j = 1; j < values.size(); ++j) shares[j] *= (1.0 - options.keep) / total;
            const std::int32_t* ids = best.ids.data() + numel(r, values.size());
            result.neighbours.insert(result.neighbours.end(), ids, ids + values.size());
            for (const double share : shares) result.weights.push_back(static_cast<float>(share));
        }
    }
    return result;
}

}  // namespace draftscope::fit
