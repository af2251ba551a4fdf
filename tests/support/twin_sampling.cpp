#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "kernels/cpu/row_ops.h"
#include "kernels/host_rows.h"
#include "tests/support/twin_checks.h"
#include "tests/support/twin_device.h"

/// Reference implementations of the ops in kernels/ops/sampling.h.
namespace draftscope::testing {

using namespace kernels;

namespace {

bool is_kept(float logit, int token, float least, int last) {
    return logit > least || (logit == least && token <= last);
}

}  // namespace

void TwinDevice::run(const TopKTopPMaskOp& op) {
    note("cut", op.logits, op.stride, op.rows, op.vocab, op.top_k, op.min_logit, op.last_tied_id);
    if (op.vocab > max_sample_columns || op.vocab < 1) reject("mask_top_k_top_p", "columns");
    if (!(op.top_p > 0) || op.top_k < 0) reject("mask_top_k_top_p", "top_p or top_k");
    for (int m = 0; m < op.rows; ++m) {
        const int vocab = op.sizes == nullptr ? op.vocab : *row(op.sizes, m, 1, "mask sizes");
        if (vocab < 0 || vocab > op.vocab) reject("mask_top_k_top_p", "more columns than the upper bound");
        const float* logits = row(op.logits, m * op.stride, size(vocab), "mask logits");
        std::vector<int> order;
        for (int i = 0; i < vocab; ++i)
            if (logits[i] == logits[i]) order.push_back(i);
        std::sort(order.begin(), order.end(),
                  [&](int a, int b) { return better(logits[a], a, logits[b], b); });
        const bool few = op.top_k > 0 && op.top_k < vocab && op.top_k <= static_cast<int>(order.size());
        if (few) order.resize(size(op.top_k));
        bool cut = few;
        if (op.top_p < 1 && !order.empty()) {
            const auto weight = [&](int i) {
                return fixed_point_weight(std::exp((logits[i] - logits[order[0]]) * op.inv_temperature));
            };
            std::uint64_t sum = 0, seen = 0;
            for (const int i : order) sum += weight(i);
            const auto wanted = static_cast<std::uint64_t>(std::ceil(op.top_p * static_cast<double>(sum)));
            std::size_t count = 0;
            while (count < order.size() && (count == 0 || seen < wanted)) seen += weight(order[count++]);
            cut = sum > 0;
            order.resize(sum > 0 ? count : 0);
        }
        float& least = *row(op.min_logit, m, 1, "min_logit");
        std::int32_t& last = *row(op.last_tied_id, m, 1, "last_tied_id");
        least = cut ? logits[order.back()] : lowest;
        last = vocab - 1;
        if (!cut) continue;
        // If all logits equal to min_logit are kept, the mask has no limit on ids.
        if (std::count(logits, logits + vocab, least) !=
            std::count_if(order.begin(), order.end(), [&](int i) { return logits[i] == least; }))
            last = order.back();
    }
}

void TwinDevice::run(const SampleOp& op) {
    note("draw", op.logits, op.stride, op.rows, op.vocab, op.uniforms, op.tokens, op.values, op.log_norm,
         op.mask.min_logit, op.mask.last_tied_id);
    if (op.vocab > max_sample_columns) reject("sample", "too many columns");
    for (int m = 0; m < op.rows; ++m) {
        const float* logits = row(op.logits, m * op.stride, size(op.vocab), "sample logits");
        float max_value = lowest;
        for (int i = 0; i < op.vocab; ++i)
            if (logits[i] > max_value) max_value = logits[i];
        const float least =
            op.mask.min_logit == nullptr ? lowest : *row(op.mask.min_logit, m, 1, "mask min_logit");
        const int last =
            op.mask.min_logit == nullptr ? op.vocab : *row(op.mask.last_tied_id, m, 1, "mask last_tied_id");
        const auto weight = [&](int i) {
            return max_value != lowest && is_kept(logits[i], i, least, last)
                       ? std::exp(static_cast<double>((logits[i] - max_value) * op.inv_temperature))
                       : 0.0;
        };
        double sum = 0, before = 0;
        for (int i = 0; i < op.vocab; ++i) sum += weight(i);
        const double target = *row(op.uniforms, m, 1, "uniforms") * sum;
        int token = 0;
        for (int i = 0; i < op.vocab && before <= target; before += weight(i++))
            if (weight(i) > 0) token = i;
        *row(op.tokens, m, 1, "sampled tokens") = token;
        *row(op.values, m, 1, "sampled values") = logits[token];
        *row(op.log_norm, m, 1, "log_norm") =
            sum > 0 ? static_cast<float>(std::log(sum) + static_cast<double>(max_value * op.inv_temperature))
                    : 0.0f;
    }
}

/// Uses the CPU's make_distribution() and sample_drafts() on the same logits and uniforms.
void TwinDevice::run(const SampleWithoutReplacementOp& op) {
    note("draft", op.logits, op.stride, op.rows, op.support, op.k, op.uniforms, op.ids, op.logprobs, op.sizes,
         op.tokens);
    if (op.support > max_sample_columns || op.k > max_topk || op.k < 1)
        reject("sample_without_replacement", "shape");
    static const std::unique_ptr<ThreadPool> pool = make_thread_pool(1);
    (void)row(op.min_logit, 0, size(op.rows), "draft scratch");
    (void)row(op.last_tied_id, 0, size(op.rows), "draft scratch");
    for (int m = 0; m < op.rows; ++m) {
        const int support = op.sizes == nullptr ? op.support : *row(op.sizes, m, 1, "draft sizes");
        if (support < 0 || support > op.support)
            reject("sample_without_replacement", "more columns than the upper bound");
        float* logits = row(op.logits, m * op.stride, size(support), "draft logits");
        const DraftProbs q{{logits, size(support)}};
        DraftSampleScratch scratch;
        make_distribution(*pool, op.temperature, op.top_k, op.top_p, scratch, q);
        const double* uniforms = row(op.uniforms, std::int64_t{m} * op.k, size(op.k), "draft uniforms");
        std::int32_t* ids = row(op.ids, std::int64_t{m} * op.k, size(op.k), "draft ids");
        float* logprobs = row(op.logprobs, std::int64_t{m} * op.k, size(op.k), "draft logprobs");
        sample_drafts(q, {uniforms, size(op.k)}, scratch, {ids, size(op.k)}, {logprobs, size(op.k)});
        for (int d = 0; d < op.k; ++d)
            if (ids[d] >= 0 && op.tokens != nullptr)
                ids[d] = *row(op.tokens, m * op.stride + ids[d], 1, "draft tokens");
    }
}

void TwinDevice::run(const RedistributeOp& op) {
    note("spread", op.logits, op.stride, op.rows, op.support, op.sizes, op.tokens, op.token_stride, op.vocab,
         op.first, op.scratch, op.out, op.out_stride);
    for (std::int64_t m = 0; m < op.rows; ++m) {
        const int count = op.sizes == nullptr ? op.support : *row(op.sizes, m, 1, "redistribute sizes");
        if (count < 0 || count > op.support) reject("redistribute", "more columns than the upper bound");
        const float* logits = row(op.logits, m * op.stride, size(count), "redistribute logits");
        double* q = row(op.scratch, m * op.vocab, size(op.vocab), "redistribute scratch");
        std::fill(q, q + op.vocab, 0.0);
        float max_value = lowest;
        for (int i = 0; i < count; ++i) max_value = logits[i] > max_value ? logits[i] : max_value;
        const auto weight = [&](int i) {
            const bool none = max_value == lowest || logits[i] != logits[i];
            return none ? 0.0 : std::exp(static_cast<double>((logits[i] - max_value) / op.temperature));
        };
        double sum = 0;
        for (int i = 0; i < count; ++i) sum += weight(i);
        for (int i = 0; i < count && sum > 0; ++i) {
            const std::int32_t token =
                op.tokens == nullptr ? i : *row(op.tokens, m * op.token_stride + i, 1, "redistribute tokens");
            if (token < 0 || token >= op.vocab) reject("redistribute", "token out of range");
            q[token] = weight(i) / sum;
        }
        for (int t = 0; t < op.vocab; ++t) {
            double mass = 0;
            const std::int32_t* from = row(op.first, t, 2, "first source");
            for (std::int32_t i = from[0]; i < from[1]; ++i)
                mass += q[*row(op.sources, i, 1, "sources")] *
                        static_cast<double>(*row(op.weights, i, 1, "source weights"));
            *row(op.out, m * op.out_stride + t, 1, "redistribute out") =
                mass > 0 ? op.temperature * static_cast<float>(std::log(mass)) : lowest;
        }
    }
}

void TwinDevice::run(const ReachableTokensOp& op) {
    ++reaches_;
    note("reach", op.tokens, op.size, op.max_count, op.vocab, op.first, op.sources, op.bits, op.out,
         op.out_size);
    (void)at(op.bits, 2 * size((op.vocab + 31) / 32), "bits");
    const int count = *row(op.size, 0, 1, "size of a set");
    if (count < 0 || count > op.max_count) reject("list_reachable_tokens", "more tokens than max_count");
    std::vector<bool> in(size(op.vocab), false);
    for (int i = 0; i < count; ++i) {
        const std::int32_t token = *row(op.tokens, i, 1, "tokens of a set");
        if (token < 0 || token >= op.vocab) reject("list_reachable_tokens", "token out of range");
        in[size(token)] = true;
    }
    int found = 0;
    for (int t = 0; t < op.vocab; ++t) {
        const std::int32_t* from = row(op.first, t, 2, "first source");
        bool reached = false;
        for (std::int32_t i = from[0]; i < from[1]; ++i)
            reached = reached || in[size(*row(op.sources, i, 1, "sources"))];
        if (reached) *row(op.out, found++, 1, "reachable tokens") = t;
    }
    *row(op.out_size, 0, 1, "number of reachable tokens") = found;
}

void TwinDevice::run(const GatherColumnsOp& op) {
    note("own_columns", op.logits, op.stride, op.rows, op.max_count, op.tokens, op.token_stride, op.sizes,
         op.columns, op.out, op.out_stride);
    for (int m = 0; m < op.rows; ++m) {
        const int count = op.sizes == nullptr ? op.max_count : *row(op.sizes, m, 1, "gather_columns sizes");
        if (count < 0 || count > op.max_count || count > op.out_stride)
            reject("gather_columns", "more columns than max_count or out_stride");
        for (int i = 0; i < count; ++i) {
            const std::int32_t token = *row(op.tokens, m * op.token_stride + i, 1, "gather_columns tokens");
            const std::int32_t column = *row(op.columns, token, 1, "gather_columns columns");
            if (column < 0 || column >= op.stride) reject("gather_columns", "column out of range");
            *row(op.out, m * op.out_stride + i, 1, "gather_columns out") =
                *row(op.logits, m * op.stride + column, 1, "gather_columns logits");
        }
    }
}

void TwinDevice::run(const RankOp& op) {
    note("rank", op.logits, op.stride, op.vocab, op.count, op.rows, op.tokens, op.values, op.ranks);
    for (int i = 0; i < op.count; ++i) {
        const std::int64_t m = *row(op.rows, i, 1, "ranked rows");
        const int token = *row(op.tokens, i, 1, "ranked tokens");
        if (token < 0 || token >= op.vocab) reject("rank", "token out of range");
        const float* logits = row(op.logits, m * op.stride, size(op.vocab), "ranked logits");
        *row(op.values, i, 1, "ranked values") = logits[token];
        if (op.ranks == nullptr) continue;
        int before = 0;
        for (int t = 0; t < op.vocab; ++t)
            before += logits[t] > logits[token] || (t < token && logits[t] == logits[token]) ? 1 : 0;
        *row(op.ranks, i, 1, "ranks") = before;
    }
}

void TwinDevice::run(const SetProbabilityOp& op) {
    note("mass", op.logits, op.stride, op.count, op.log_norm, op.rows, op.first, op.size, op.ids, op.out,
         op.min_logit, op.first_row, op.d_count);
    const int sets = op.d_count == nullptr ? op.count : *row(op.d_count, 0, 1, "number of sets");
    if (sets > op.count) reject("mass", "count");
    for (int i = 0; i < sets; ++i) {
        const std::int64_t m = op.first_row + *row(op.rows, i, 1, "set rows");
        const float norm = *row(op.log_norm, m, 1, "log_norm");
        const int first = *row(op.first, i, 1, "first of a set"),
                  count = *row(op.size, i, 1, "size of a set");
        const float least = op.min_logit == nullptr ? lowest : *row(op.min_logit, m, 1, "min_logit");
        double sum = 0;
        for (int j = first; j < first + count; ++j) {
            const float logit =
                *row(op.logits, m * op.stride + *row(op.ids, j, 1, "ids of a set"), 1, "logits");
            if (logit >= least) sum += std::exp(static_cast<double>(logit * op.inv_temperature - norm));
        }
        *row(op.out, i, 1, "set probability") = static_cast<float>(sum);
    }
}

void TwinDevice::run(const EntropyOp& op) {
    note("entropy", op.logits, op.stride, op.rows, op.vocab, op.log_norm, op.min_logit, op.out);
    for (int m = 0; m < op.rows; ++m) {
        const float* logits = row(op.logits, m * op.stride, size(op.vocab), "entropy logits");
        const float norm = *row(op.log_norm, m, 1, "entropy log_norm");
        const float least = op.min_logit == nullptr ? lowest : *row(op.min_logit, m, 1, "entropy min_logit");
        double sum = 0;
        for (int i = 0; i < op.vocab; ++i) {
            if (!(logits[i] >= least)) continue;
            const auto p =
                static_cast<double>(std::min(std::exp(logits[i] * op.inv_temperature - norm), 1.0f));
            sum -= p * std::log(p + static_cast<double>(entropy_floor));
        }
        *row(op.out, m, 1, "entropies") = static_cast<float>(sum);
    }
}

void TwinDevice::run(const RejectionSampleOp& op) {
    note("residual", op.logits, op.stride, op.vocab, op.count, op.nodes, op.probs, op.weights, op.accepted);
    if (op.vocab > max_sample_columns) reject("rejection_sample", "too many columns");
    (void)at(op.weights, size(op.count) * size(op.vocab), "rejection weights");
    for (int n = 0; n < op.count; ++n) {
        const RejectionNode node = *row(op.nodes, n, 1, "rejection nodes");
        const float* logits = row(op.logits, node.row * op.stride, size(op.vocab), "rejection logits");
        const float norm = *row(op.log_norm, node.row, 1, "rejection log_norm");
        const float least =
            op.min_logit == nullptr ? lowest : *row(op.min_logit, node.row, 1, "rejection min_logit");
        float* q = nullptr;
        if (node.support > 0) {
            q = row(op.probs, node.first_prob, size(node.support), "rejection probs");
            (void)row(op.saved, node.first_prob, size(node.support), "rejection saved");
        }
        const auto id = [&](int i) {
            return node.first_id < 0 ? i : *row(op.ids, node.first_id + i, 1, "rejection ids");
        };
        std::vector<double> p(size(op.vocab));
        for (int i = 0; i < op.vocab; ++i)
            if (logits[i] >= least)
                p[size(i)] =
                    static_cast<double>(std::min(std::exp(logits[i] * op.inv_temperature - norm), 1.0f));
        double all = 1, left = 1;
        int accepted = -1, bonus = -1;
        for (int d = 0; d < node.drafts && accepted < 0; ++d) {
            const int token = *row(op.drafts, node.first_draft + d, 1, "rejection drafts");
            int place = 0;
            while (place < node.support && id(place) != token) ++place;
            if (node.support > 0 && place == node.support)
                reject("rejection_sample", "a draft outside the support of q");
            const double share = node.support == 0 ? 1.0 : static_cast<double>(q[place]) / left;
            const double chance = all > 0 ? p[size(token)] / all : 0.0;
            if (*row(op.uniforms, node.first_draft + d, 1, "rejection uniforms") * share < chance) {
                accepted = d;
                break;
            }
            if (d == 0) all = std::accumulate(p.begin(), p.end(), 0.0);
            std::vector<double> rest = p;
            if (node.support == 0) rest[size(token)] = 0;
            for (int i = 0; i < node.support; ++i)
                rest[size(id(i))] = std::max(0.0, rest[size(id(i))] - static_cast<double>(q[i]) * all / left);
            const double sum = std::accumulate(rest.begin(), rest.end(), 0.0);
            if (sum > 0) {
                p = rest;
                all = sum;
            }
            if (node.support == 0) continue;
            q[place] = 0;
            left = std::accumulate(q, q + node.support, 0.0);
        }
        if (accepted < 0 && node.drafts > 0) {
            const double target = node.uniform * all;
            double before = 0;
            bonus = 0;
            for (int i = 0; i < op.vocab && before <= target; before += p[size(i++)])
                if (p[size(i)] > 0) bonus = i;
        }
        *row(op.accepted, n, 1, "rejection accepted") = accepted;
        *row(op.bonus, n, 1, "rejection bonus") = bonus;
        *row(op.bonus_logits, n, 1, "rejection bonus logits") = bonus < 0 ? 0.0f : logits[bonus];
    }
}

}  // namespace draftscope::testing
