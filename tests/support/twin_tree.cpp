#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "tests/support/twin_checks.h"
#include "tests/support/twin_device.h"

/// Reference implementations of the ops in kernels/ops/tree.h.
namespace draftscope::testing {

using namespace kernels;

namespace {

/// NaN, the score of a missing candidate, sorts last.
bool ranks_before(float a, float b) {
    return !std::isnan(a) && (std::isnan(b) || a > b);
}

}  // namespace

void TwinDevice::run(const BeamOp& op) {
    note("beam", op.level, op.rows, op.k, op.ids, op.logits, op.logsumexp, op.shared_logits, op.tokens,
         op.pool_tokens, op.pool_logprobs, op.keep, op.first_row, op.first_slot, op.scores, op.next_tokens,
         op.next_rows, op.ancestor_slots, op.next_ancestor_slots, op.pool_scores, op.pool_parents,
         op.row_indices, op.first_index, op.static_mask, op.static_next);
    const int count = op.rows * op.k;
    if (count > max_beam || op.rows > max_topk || op.keep > std::min(count, max_topk) ||
        (op.level == 0 && op.rows != 1))
        reject("beam", "shape");
    const auto is_none = [&](int i) { return *row(op.pool_tokens, i, 1, "pool") < 0; };
    std::vector<float> scores(size(count));
    std::vector<int> order(size(count));
    std::iota(order.begin(), order.end(), 0);
    for (int i = 0; i < count; ++i) {
        const int from = op.shared_logits ? i % op.k : i;
        const int id = *row(op.ids, from, 1, "beam ids");
        float logprob = *row(op.logits, from, 1, "logits");
        if (!op.sampled) logprob -= *row(op.logsumexp, op.shared_logits ? 0 : i / op.k, 1, "logsumexp");
        const float above = op.level == 0 ? 0.0f : *row(op.scores, i / op.k, 1, "scores");
        logprob = logprob == logprob ? std::min(logprob, 0.0f) : lowest;
        const float total = above + (op.sampled ? -1.0f - static_cast<float>(i % op.k) : logprob);
        const bool below = logprob > lowest && (logprob < op.min_logprob || total < op.min_score);
        const bool none = id < 0 || std::isnan(above) || below ||
                          (op.static_mask != nullptr && *row(op.static_mask, i, 1, "static_mask") == 0);
        *row(op.pool_tokens, i, 1, "pool") = none                   ? -1
                                             : op.tokens == nullptr ? id
                                                                    : *row(op.tokens, id, 1, "tokens of ids");
        *row(op.pool_logprobs, i, 1, "pool") = logprob;
        if (op.pool_parents != nullptr)
            *row(op.pool_parents, i, 1, "pool parents") =
                op.level == 0 ? -1 : *row(op.row_indices, i / op.k, 1, "row indices");
        if (op.pool_rows != nullptr) *row(op.pool_rows, i, 1, "pool rows") = -1;
        float own = op.sampled ? -1.0f - static_cast<float>(i % op.k) : logprob;
        if (op.static_mask != nullptr) own = 0.0f;
        scores[size(i)] = none ? std::nanf("") : above + own;
    }
    if (op.pool_scores != nullptr)
        std::copy(scores.begin(), scores.end(), row(op.pool_scores, 0, scores.size(), "pool scores"));
    if (op.static_next != nullptr)
        std::copy_n(row(op.static_next, 0, size(op.keep), "static_next"), op.keep, order.begin());
    else if (op.level > 0 || op.sampled)
        std::stable_sort(order.begin(), order.end(),
                         [&](int a, int b) { return ranks_before(scores[size(a)], scores[size(b)]); });
    else
        std::stable_partition(order.begin(), order.end(), [&](int i) { return !is_none(i); });
    // A missing candidate that becomes a row duplicates the first valid row.
    const auto kept = order.begin() + op.keep;
    const auto real = std::find_if_not(order.begin(), kept, is_none);
    std::vector<std::int32_t> ancestor_slots(size(op.rows) * size(op.level));
    if (op.level > 0 && op.keep > 0)
        std::copy_n(row(op.ancestor_slots, 0, ancestor_slots.size(), "ancestor slots"), ancestor_slots.size(),
                    ancestor_slots.begin());
    for (int b = 0; b < op.keep; ++b) {
        const int i = order[size(b)];
        const int like = is_none(i) && real != kept ? *real : i;
        const int from = like / op.k;
        const bool last = *row(op.pool_logprobs, i, 1, "pool") < op.min_next_logprob;
        *row(op.scores, b, 1, "scores") = last ? std::nanf("") : scores[size(i)];
        *row(op.next_tokens, b, 1, "next tokens") = std::max(*row(op.pool_tokens, like, 1, "pool"), 0);
        *row(op.next_rows, b, 1, "next rows") = op.first_row + from;
        if (op.row_indices != nullptr) *row(op.row_indices, b, 1, "row indices") = op.first_index + i;
        if (op.pool_rows != nullptr) *row(op.pool_rows, i, 1, "pool rows") = op.next_first_row + b;
        std::int32_t* tail = row(op.next_ancestor_slots, std::int64_t{b} * (op.level + 1), size(op.level + 1),
                                 "next ancestor slots");
        std::copy_n(ancestor_slots.begin() + std::ptrdiff_t{from} * op.level, op.level, tail);
        tail[op.level] = op.first_slot + b;
    }
}

void TwinDevice::run(const RerankOp& op) {
    if (in_replay_) reject("rerank", "inside a graph");
    if (!can_rerank(op.candidates, op.nodes)) reject("rerank", "shape");
    const float* scores = row(op.pool_scores, 0, size(op.candidates), "pool scores");
    const std::int32_t* parents = row(op.pool_parents, 0, size(op.candidates), "pool parents");
    std::vector<int> order(size(op.candidates)), node_of(size(op.candidates), -1);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int a, int b) { return ranks_before(scores[a], scores[b]); });
    order.resize(size(op.nodes - 1));
    const auto is_none = [&](int i) { return *row(op.pool_tokens, i, 1, "pool") < 0; };
    if (!op.by_score) std::sort(order.begin(), order.end());
    std::stable_partition(order.begin(), order.end(), [&](int i) { return !is_none(i); });
    for (int node = 0; node < op.nodes; ++node) {
        const int place = node == 0 ? -1 : order[size(node - 1)];
        std::vector<int> tail;
        const bool none = place >= 0 && is_none(place);
        for (int at = place; at >= 0; at = none ? -1 : parents[at]) {
            if (at != place && node_of[size(at)] < 0) reject("rerank", "a child without its parent");
            tail.push_back(op.first_slot + (at == place ? node : node_of[size(at)]));
        }
        tail.push_back(op.first_slot);
        if (place >= 0) node_of[size(place)] = node;
        const int above = none ? node : place < 0 || parents[place] < 0 ? 0 : node_of[size(parents[place])];
        const int depth = static_cast<int>(tail.size()) - 1;
        const std::int64_t r = op.first_row + node;
        if (depth >= op.rows.width) reject("rerank", "a path deeper than rows.width");
        *row(op.rows.tokens, r, 1, "tokens") =
            place < 0 ? op.root : std::max(*row(op.pool_tokens, place, 1, "pool"), 0);
        *row(op.rows.parents, r, 1, "parents") = op.first_row + above;
        *row(op.rows.positions, r, 1, "positions") = op.first_position + depth;
        *row(op.rows.ancestor_counts, r, 1, "ancestor counts") = depth + 1;
        *row(op.rows.logprobs, r, 1, "logprobs") =
            place < 0 ? 0.0f : *row(op.pool_logprobs, place, 1, "pool");
        std::copy(tail.rbegin(), tail.rend(),
                  row(op.rows.ancestor_slots, r * op.rows.width, tail.size(), "ancestor slots"));
        if (op.rows.sampled_rows != nullptr)
            *row(op.rows.sampled_rows, r, 1, "sampled rows") =
                place < 0 ? op.root_row : *row(op.pool_rows, place, 1, "pool rows");
        if (op.rows.uniforms != nullptr)
            *row(op.rows.uniforms, r, 1, "uniforms") = *row(op.uniforms, depth, 1, "uniforms by depth");
    }
}

void TwinDevice::run(const FollowArgmaxOp& op) {
    if (in_replay_) reject("follow_argmax", "inside a graph");
    std::vector<std::int32_t> path = {0};
    if (op.max_count < 1 || op.max_count > op.rows.width) reject("follow_argmax", "max_count");
    for (int i = 1; i < op.nodes && static_cast<int>(path.size()) < op.max_count; ++i) {
        const int parent = op.first_row + path.back();
        if (*row(op.rows.parents, op.first_row + i, 1, "parents") == parent &&
            (op.choices == nullptr || *row(op.rows.tokens, op.first_row + i, 1, "tokens") ==
                                          *row(op.choices, parent * op.choice_stride, 1, "choices")))
            path.push_back(i);
    }
    std::copy(path.begin(), path.end(), row(op.path, 0, path.size(), "path"));
    *row(op.count, 0, 1, "path count") = static_cast<std::int32_t>(path.size());
}

void TwinDevice::run(const AcceptTypicalOp& op) {
    note("accept_typical", op.first_row, op.nodes, op.draft_logits, op.entropies, op.path);
    if (op.nodes < 1 || op.nodes > max_candidates + 1) reject("accept_typical", "nodes");
    std::vector<double> likelihood(size(op.nodes), 0.0);
    std::vector<bool> accepted(size(op.nodes), false);
    std::vector<int> parents(size(op.nodes), -1), depths(size(op.nodes), 0);
    accepted[0] = true;
    int best = 0;
    for (int i = 1; i < op.nodes; ++i) {
        const int row_above = *row(op.rows.parents, op.first_row + i, 1, "parents");
        const int parent = row_above - op.first_row;
        if (parent == i) continue;  // a missing candidate
        if (parent < 0 || parent > i) reject("accept_typical", "a parent after its child");
        parents[size(i)] = parent;
        depths[size(i)] = depths[size(parent)] + 1;
        if (!accepted[size(parent)]) continue;
        const float logit = *row(op.draft_logits, op.first_row + i, 1, "draft logits");
        const float norm = *row(op.log_norm, row_above, 1, "log_norm");
        if (op.min_logit != nullptr && !(logit >= *row(op.min_logit, row_above, 1, "min_logit"))) continue;
        const auto p = static_cast<double>(std::min(std::exp(logit * op.inv_temperature - norm), 1.0f));
        const auto entropy = static_cast<double>(*row(op.entropies, row_above, 1, "entropies"));
        if (!(p > std::min(op.epsilon, op.delta * std::exp(-entropy)))) continue;
        accepted[size(i)] = true;
        likelihood[size(i)] = likelihood[size(parent)] + std::log(p);
        const bool deeper = depths[size(i)] > depths[size(best)];
        if (deeper || (depths[size(i)] == depths[size(best)] && likelihood[size(i)] > likelihood[size(best)]))
            best = i;
    }
    const int count = depths[size(best)] + 1;
    std::int32_t* path = row(op.path, 0, size(count), "path");
    for (int at = best, i = count - 1; i >= 0; at = parents[size(at)], --i) path[i] = at;
    *row(op.count, 0, 1, "path count") = count;
}

void TwinDevice::run(const ListChildrenOp& op) {
    for (int n = 0; n < op.nodes; ++n) {
        const std::int64_t r = op.first_row + n, first = r * op.max_count;
        const int depth = *row(op.rows.ancestor_counts, r, 1, "ancestor counts") - 1;
        RejectionNode node{.row = static_cast<std::int32_t>(r),
                           .first_draft = static_cast<std::int32_t>(first)};
        for (int i = n + 1; i < op.nodes; ++i) {
            if (*row(op.rows.parents, op.first_row + i, 1, "parents") != r) continue;
            if (node.drafts == op.max_count) reject("list_children", "more children than max_count");
            const std::int64_t at = first + node.drafts;
            *row(op.children, at, 1, "children") = i;
            *row(op.drafts, at, 1, "drafts") = *row(op.rows.tokens, op.first_row + i, 1, "tokens");
            *row(op.draft_uniforms, at, 1, "uniforms") =
                *row(op.uniforms, std::int64_t{depth} * op.max_count + node.drafts, 1, "uniforms by depth");
            ++node.drafts;
        }
        const std::int32_t from = *row(op.rows.sampled_rows, r, 1, "sampled rows");
        const bool certain = node.drafts > 0 && from<0, sampled = node.drafts> 0 && from >= 0;
        node.first_prob = sampled ? from * op.stride : 0;
        node.support = certain                           ? 0
                       : !sampled || op.sizes == nullptr ? op.support
                                                         : *row(op.sizes, from, 1, "sizes");
        node.first_id = certain                         ? -1
                        : !sampled || op.id_stride == 0 ? op.first_id
                                                        : op.first_id + from * op.id_stride;
        node.uniform = *row(op.rows.uniforms, r, 1, "uniforms");
        *row(op.out, r, 1, "rejection nodes") = node;
    }
}

void TwinDevice::run(const FollowAcceptedOp& op) {
    int at = 0, count = 0;
    while (true) {
        *row(op.path, count++, 1, "path") = at;
        const std::int64_t r = op.first_row + at;
        const int kept = *row(op.accepted, r, 1, "accepted");
        if (kept < 0) break;
        if (count == op.width) reject("follow_accepted", "a path deeper than rows.width");
        at = *row(op.children, r * op.max_count + kept, 1, "children");
    }
    *row(op.count, 0, 1, "path count") = count;
}

}  // namespace draftscope::testing
