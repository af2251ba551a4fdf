#include "engine/heads/bcl.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "engine/heads/factories.h"
#include "engine/heads/static_vocab.h"
#include "engine/heads/trimmed_head.h"

namespace draftscope {
namespace {

struct CountedRanking {
    std::vector<TokenId> ids;  ///< most frequent first
    std::vector<std::int64_t> counts;
};

Result<CountedRanking> load_counted_ranking(const std::string& path) {
    CountedRanking ranking;
    DS_ASSIGN(const auto file, open_ranking(path));
    DS_ASSIGN(ranking.ids, ranking_ids(*file, "bcl"));
    DS_ASSIGN(ranking.counts, file->read_integers("counts"));
    if (ranking.counts.size() != ranking.ids.size())
        return bad_input("{}: tensor 'counts' has {} values for {} ids (head bcl)", path,
                         ranking.counts.size(), ranking.ids.size());
    for (const std::int64_t count : ranking.counts)
        if (count < 0) return bad_input("{}: tensor 'counts' contains {} (head bcl)", path, count);
    if (std::all_of(ranking.counts.begin(), ranking.counts.end(), [](std::int64_t n) { return n == 0; }))
        return bad_input("{}: tensor 'counts' contains only zeros (head bcl)", path);
    return ranking;
}

/// Counts in the order in which a static vocabulary selects tokens: the always-active tokens (`first` of
/// them), then the ranking. Excludes tokens that the drafter's LM head lacks.
struct KeepOrder {
    int first = 0;
    std::vector<std::int64_t> counts;
};

KeepOrder keep_order(const CountedRanking& ranking, const HeadWeights& weights) {
    const std::size_t vocab = weights.vocab;
    std::vector<std::int64_t> counts_by_token(vocab, -1);  // -1 = used, or not in the ranking
    for (std::size_t i = 0; i < ranking.ids.size(); ++i) {
        const std::size_t id = ranking.ids[i];
        if (id < vocab && counts_by_token[id] < 0) counts_by_token[id] = ranking.counts[i];
    }
    std::vector<bool> selected(vocab, false);
    KeepOrder order;
    const auto take = [&](TokenId id) {
        if (!lm_head_has(weights, id) || selected[id]) return;
        selected[id] = true;
        order.counts.push_back(std::max<std::int64_t>(counts_by_token[id], 0));
    };
    for (const TokenId id : weights.always_active) take(id);
    order.first = static_cast<int>(order.counts.size());
    for (const TokenId id : ranking.ids) take(id);
    return order;
}

/// The paper counts FLOPs: two per weight, of the backbone and of the kept rows. `bytes` counts the memory
/// traffic of a one-row pass: weights, and each logit written once and read by softmax and top-k.
DraftPassCost pass_cost(const HeadWeights& weights, bool bytes) {
    const kernels::Matrix& head = *weights.lm_head;
    const double row_bytes = static_cast<double>(head.bytes()) / head.n();
    if (bytes) return {weights.drafter_bytes, row_bytes + 3 * sizeof(float)};
    const double weight_bytes = row_bytes / head.k();
    return {2 * weights.drafter_bytes / weight_bytes, 2.0 * head.k()};
}

}  // namespace

int solve_bcl_size(std::span<const std::int64_t> counts, int smallest, int vocab, DraftPassCost cost,
                   double alpha) {
    const auto total = static_cast<double>(std::accumulate(counts.begin(), counts.end(), std::int64_t{0}));
    const double full_cost = cost.fixed + vocab * cost.per_token;
    std::int64_t covered = 0;
    double best_utility = 0;
    int best = 0;
    for (int m = 1; m <= static_cast<int>(counts.size()); ++m) {
        covered += counts[m - 1];
        if (m < smallest) continue;
        const double utility = alpha * static_cast<double>(covered) / total +
                               (1 - alpha) * (1 - (cost.fixed + m * cost.per_token) / full_cost);
        if (best > 0 && utility <= best_utility) continue;
        best = m;
        best_utility = utility;
    }
    return best;
}

namespace {

// Default of the published command line; the cost in bytes is ours.
constexpr HeadParam bcl_params[] = {
    {"alpha", 0.5, 0, 1, false,
     "weight of coverage against cost when solving for the size; not the overlap alpha"},
    {"bytes", 0, 0, 1, true, "1: cost in bytes moved instead of the paper's FLOPs"},
    eos_param,
    softmax_param,
};

/// If there is an artefact, uses BCL trained with its head. Otherwise only the size is solved, for an
/// existing drafter.
Result<std::unique_ptr<LmHead>> make_bcl(const HeadSpec& spec, const HeadFiles& artefacts) {
    if (!artefacts.artefact_path.empty()) {
        for (const std::string_view name : {"alpha", "bytes"})
            if (const auto given = spec.params.find(name); given != spec.params.end())
                return bad_input(
                    "head bcl: {}={} only applies when the size "
                    "is solved, but {} has a fixed size; omit it",
                    name, given->second, artefacts.artefact_path);
        return make_trained_vocab_head(spec, artefacts);
    }
    DS_ASSIGN(const double alpha, number_param(spec, "alpha", 0.5));
    DS_ASSIGN(const int bytes, int_param(spec, "bytes", 0));
    DS_ASSIGN(const std::string path, required_ranking(artefacts, spec.id));
    DS_ASSIGN(CountedRanking ranking, load_counted_ranking(path));
    std::vector<TokenId> ids = ranking.ids;
    SizeRule size = [ranking = std::move(ranking), alpha, bytes](const HeadWeights& weights) -> Result<int> {
        const KeepOrder order = keep_order(ranking, weights);
        if (std::all_of(order.counts.begin(), order.counts.end(), [](std::int64_t n) { return n == 0; }))
            return bad_input("head bcl: the ranking counts no token of the drafter's LM head");
        return solve_bcl_size(order.counts, std::max(order.first, 1), num_lm_head_tokens(weights),
                              pass_cost(weights, bytes != 0), alpha);
    };
    return make_trimmed_head(spec, std::move(ids), std::move(size));
}

}  // namespace

HeadInfo describe_bcl() {
    return {.id = "bcl",
            .name = "BCL",
            .paper = "BCL, arXiv 2603.05210",
            .params = bcl_params,
            .rgb = 0xC9BE2C,
            .required_file = RequiredFile::either,
            .artefact =
                "token ranking from assistant text (safetensors with 'ids' and 'counts'), or a trained "
                "trimmed head",
            .fit = {.kinds = FitRecipe::generations | FitRecipe::alpha_rows},
            .make = make_bcl};
}

}  // namespace draftscope
