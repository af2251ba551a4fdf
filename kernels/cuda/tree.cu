#include <cmath>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/top.cuh"

namespace draftscope::kernels::cuda {
namespace {

constexpr int beam_warps = 8;
constexpr int beam_threads = beam_warps * warp_size;
static_assert(beam_threads * held == max_beam);

/// Score of candidate `at` of a level; NaN = missing.
__device__ __forceinline__ float candidate_score(const BeamOp& op, int at, bool none, float logprob,
                                                 float above) {
    if (none) return NAN;
    if (op.static_mask != nullptr) return above;
    return above + (op.sampled ? -1.0f - static_cast<float>(at % op.k) : logprob);
}

/// A candidate that is not a number stays, so that it is reported.
__device__ __forceinline__ bool is_below_limits(const BeamOp& op, float logprob, float score) {
    return logprob > -INFINITY && (logprob < op.min_logprob || score < op.min_score);
}

/// One block per sequence: one level of a tree, in the arithmetic of the CPU's op.
__global__ void __launch_bounds__(beam_threads) beam_kernel(const __grid_constant__ Many<BeamOp> many) {
    const BeamOp& op = many.ops[blockIdx.x];
    DS_SHARED(std::uint64_t[beam_warps * max_topk], shared);
    DS_SHARED(std::uint64_t[max_topk], best);
    DS_SHARED(float[max_topk], above);
    DS_SHARED(int[max_topk], parents);
    DS_SHARED(int, first_real);  // counted from the end, 0 = none
    const int count = op.rows * op.k;
    wait_for_previous();
    if (threadIdx.x == 0) first_real = 0;
    for (int r = static_cast<int>(threadIdx.x); r < op.rows; r += beam_threads) {
        above[r] = op.level == 0 ? 0.0f : op.scores[r];
        parents[r] = op.level == 0 || op.row_indices == nullptr ? -1 : op.row_indices[r];
    }
    __syncthreads();
    std::uint64_t keys[held];
#pragma unroll
    for (int i = 0; i < held; ++i) {
        const int at = i * beam_threads + static_cast<int>(threadIdx.x);
        keys[i] = no_key;
        if (at >= count) continue;
        const int row = at / op.k;
        const int from = op.shared_logits ? at % op.k : at;
        float logprob =
            op.sampled ? op.logits[from] : op.logits[from] - op.logsumexp[op.shared_logits ? 0 : row];
        logprob = logprob == logprob ? fminf(logprob, 0.0f) : -INFINITY;
        const int id = op.ids[from];
        const bool none = id < 0 || above[row] != above[row] ||
                          (op.static_mask != nullptr && op.static_mask[at] == 0) ||
                          is_below_limits(op, logprob, candidate_score(op, at, false, logprob, above[row]));
        op.pool_tokens[at] = none ? -1 : op.tokens == nullptr ? id : op.tokens[id];
        op.pool_logprobs[at] = logprob;
        const float total = candidate_score(op, at, none, logprob, above[row]);
        if (op.pool_scores != nullptr) op.pool_scores[at] = total;
        if (op.pool_parents != nullptr) op.pool_parents[at] = parents[row];
        if (op.pool_rows != nullptr) op.pool_rows[at] = -1;
        // At the first level, candidates keep their order, whatever their values.
        const float score = op.level == 0 && !op.sampled && !none ? -static_cast<float>(at) : total;
        keys[i] = rank_key(score, static_cast<std::uint32_t>(at));
    }
    if (op.keep == 0) return;  // uniform across the block
    if (op.static_next == nullptr && count <= beam_threads) {
        std::uint64_t one[1] = {keys[0]};
        block_top<beam_warps>(one, op.keep, shared, best);
    } else if (op.static_next == nullptr) {
        block_top<beam_warps>(keys, op.keep, shared, best);
    }
    __syncthreads();  // and the pool is written
    const auto candidate_at = [&](int b) {
        return op.static_next == nullptr ? static_cast<int>(key_index(best[b])) : op.static_next[b];
    };
    const auto is_none = [&](int at) { return op.pool_tokens[at] < 0; };
    for (int b = static_cast<int>(threadIdx.x); b < op.keep; b += beam_threads)
        if (!is_none(candidate_at(b))) atomicMax(&first_real, op.keep - b);
    __syncthreads();
    for (int b = static_cast<int>(threadIdx.x); b < op.keep; b += beam_threads) {
        const int at = candidate_at(b);
        const bool none = is_none(at) || op.pool_logprobs[at] < op.min_next_logprob;
        op.scores[b] = candidate_score(op, at, none, op.pool_logprobs[at], above[at / op.k]);
        if (op.pool_rows != nullptr) op.pool_rows[at] = op.next_first_row + b;
        if (op.row_indices != nullptr) op.row_indices[b] = op.first_index + at;
        const int like = none && first_real > 0 ? candidate_at(op.keep - first_real) : at;
        const int row = like / op.k;
        op.next_tokens[b] = max(op.pool_tokens[like], 0);
        op.next_rows[b] = op.first_row + row;
        std::int32_t* tail = op.next_ancestor_slots + static_cast<std::int64_t>(b) * (op.level + 1);
        for (int l = 0; l < op.level; ++l)
            tail[l] = op.ancestor_slots[static_cast<std::int64_t>(row) * op.level + l];
        tail[op.level] = op.first_slot + b;
    }
}

constexpr int rerank_warps = 32;
constexpr int rerank_threads = rerank_warps * warp_size;

/// One block per sequence: sorts the pool by score, numbers the best candidates and writes each node's row.
__global__ void __launch_bounds__(rerank_threads) rerank_kernel(const __grid_constant__ Many<RerankOp> many) {
    const RerankOp& op = many.ops[blockIdx.x];
    DS_SHARED(std::uint64_t[max_candidates], keys);
    DS_SHARED(std::int16_t[max_candidates], node_of);
    DS_SHARED(int[rerank_warps], totals);
    const int thread = static_cast<int>(threadIdx.x), keep = op.nodes - 1;
    int padded = 2;
    while (padded < op.candidates) padded *= 2;
    for (int i = thread; i < padded; i += rerank_threads) {
        const bool valid = i < op.candidates;
        keys[i] = valid ? rank_key(op.pool_scores[i], static_cast<std::uint32_t>(i)) : no_key;
        node_of[i] = 0;
    }
    __syncthreads();
    // Bitonic sort, descending.
    for (int size = 2; size <= padded; size *= 2)
        for (int apart = size / 2; apart > 0; apart /= 2) {
            for (int i = thread; i < padded; i += rerank_threads) {
                const int other = i ^ apart;
                if (other <= i) continue;
                const std::uint64_t a = keys[i], b = keys[other];
                if ((a < b) == ((i & size) == 0)) {
                    keys[i] = b;
                    keys[other] = a;
                }
            }
            __syncthreads();
        }
    // Numbers of the kept candidates, from 1; 0 = dropped.
    for (int i = thread; i < keep; i += rerank_threads)
        node_of[key_index(keys[i])] = static_cast<std::int16_t>(op.by_score ? i + 1 : 1);
    __syncthreads();
    const auto is_none = [&](int i) { return op.pool_tokens[i] < 0; };
    int before = 0;
    // Missing candidates come last.
    for (int turn = 0; !op.by_score && turn < 2; ++turn) {
        const int each = (op.candidates + rerank_threads - 1) / rerank_threads;
        const int first = min(thread * each, op.candidates), end = min(first + each, op.candidates);
        const auto counts = [&](int i) { return node_of[i] != 0 && is_none(i) == (turn == 1); };
        int local_count = 0, all = 0;
        for (int i = first; i < end; ++i) local_count += counts(i) ? 1 : 0;
        int node = before + block_before<rerank_warps>(local_count, totals, all);
        for (int i = first; i < end; ++i)
            if (counts(i)) node_of[i] = static_cast<std::int16_t>(++node);
        before += all;
    }
    __syncthreads();
    const TreeRows& rows = op.rows;
    for (int i = thread - 1; i < op.candidates; i += rerank_threads) {
        // The first thread's first turn handles the root.
        const int node = i < 0 ? 0 : node_of[i];
        if (i >= 0 && node == 0) continue;
        const bool none = i >= 0 && is_none(i);
        int depth = none ? 1 : 0;
        for (int at = i; at >= 0 && !none; at = op.pool_parents[at]) ++depth;
        const std::int64_t row = op.first_row + node;
        const int parent = none ? node : i < 0 || op.pool_parents[i] < 0 ? 0 : node_of[op.pool_parents[i]];
        rows.tokens[row] = i < 0 ? op.root : max(op.pool_tokens[i], 0);
        rows.parents[row] = op.first_row + parent;
        rows.positions[row] = op.first_position + depth;
        rows.ancestor_counts[row] = depth + 1;
        rows.logprobs[row] = i < 0 ? 0.0f : op.pool_logprobs[i];
        std::int32_t* tail = rows.ancestor_slots + row * rows.width;
        for (int at = i, d = depth; d > 0; at = op.pool_parents[at], --d)
            tail[d] = op.first_slot + node_of[at];
        tail[0] = op.first_slot;
        if (rows.sampled_rows != nullptr) rows.sampled_rows[row] = i < 0 ? op.root_row : op.pool_rows[i];
        if (rows.uniforms != nullptr) rows.uniforms[row] = op.uniforms[depth];
    }
}

/// One warp per sequence: its lanes search for the next node together, the first that follows.
__global__ void __launch_bounds__(warp_size)
    follow_argmax_kernel(const __grid_constant__ Many<FollowArgmaxOp> many) {
    const FollowArgmaxOp& op = many.ops[blockIdx.x];
    const int lane = static_cast<int>(threadIdx.x);
    wait_for_previous();
    int at = 0, count = 1;
    if (lane == 0) op.path[0] = 0;
    while (true) {
        const int parent = op.first_row + at;
        const bool any = op.choices == nullptr;
        const std::int32_t token = any ? 0 : op.choices[parent * op.choice_stride];
        int found = 0;  // nodes from the child on
        for (int i = at + 1 + lane; i < op.nodes; i += warp_size)
            if (found == 0 && op.rows.parents[op.first_row + i] == parent &&
                (any || op.rows.tokens[op.first_row + i] == token))
                found = op.nodes - i;
        found = static_cast<int>(warp_max(static_cast<std::uint64_t>(found)));
        if (found == 0 || count == op.max_count) break;
        at = op.nodes - found;
        if (lane == 0) op.path[count] = at;
        ++count;
    }
    if (lane == 0) *op.count = count;
}

constexpr int list_threads = 128;

/// One block per sequence, a thread per node: parents precede their children.
__global__ void __launch_bounds__(list_threads)
    list_kernel(const __grid_constant__ Many<ListChildrenOp> many) {
    const ListChildrenOp& op = many.ops[blockIdx.x];
    for (int n = static_cast<int>(threadIdx.x); n < op.nodes; n += list_threads) {
        const int row = op.first_row + n, depth = op.rows.ancestor_counts[row] - 1;
        const std::int64_t first = static_cast<std::int64_t>(row) * op.max_count;
        int count = 0;
        for (int i = n + 1; i < op.nodes && count < op.max_count; ++i) {
            if (op.rows.parents[op.first_row + i] != row) continue;
            op.children[first + count] = i;
            op.drafts[first + count] = op.rows.tokens[op.first_row + i];
            op.draft_uniforms[first + count] = op.uniforms[depth * op.max_count + count];
            ++count;
        }
        const int from = op.rows.sampled_rows[row];
        RejectionNode node;
        node.row = row;
        node.first_draft = static_cast<std::int32_t>(first);
        node.drafts = count;
        const bool sampled = count > 0 && from >= 0;
        node.first_prob = sampled ? static_cast<std::int64_t>(from) * op.stride : 0;
        node.support = sampled && op.sizes != nullptr ? op.sizes[from] : op.support;
        node.first_id = sampled && op.id_stride != 0 ? op.first_id + from * op.id_stride : op.first_id;
        if (count > 0 && from < 0) {
            node.support = 0;
            node.first_id = -1;
        }
        node.uniform = op.rows.uniforms[row];
        op.out[row] = node;
    }
}

/// One thread per sequence.
__global__ void follow_accepted_kernel(const __grid_constant__ Many<FollowAcceptedOp> many) {
    const FollowAcceptedOp& op = many.ops[blockIdx.x];
    int at = 0, count = 0;
    while (true) {
        op.path[count++] = at;
        const std::int64_t row = op.first_row + at;
        const int accepted_child = op.accepted[row];
        if (accepted_child < 0 || count == op.width) break;
        at = op.children[row * op.max_count + accepted_child];
    }
    *op.count = count;
}

constexpr int typical_threads = 128;

/// One block per sequence. Threads test the nodes; one thread then follows the accepted ones, as parents
/// precede their children.
__global__ void __launch_bounds__(typical_threads)
    accept_typical_kernel(const __grid_constant__ Many<AcceptTypicalOp> many) {
    const AcceptTypicalOp& op = many.ops[blockIdx.x];
    DS_SHARED(double[max_candidates + 1],
              likelihood);         // of the node after its parent, then of the path to it
    constexpr double refused = 1;  // not the logarithm of a probability
    const TreeRows& rows = op.rows;
    for (int i = 1 + static_cast<int>(threadIdx.x); i < op.nodes; i += typical_threads) {
        const int parent = rows.parents[op.first_row + i];
        const float logit = op.draft_logits[op.first_row + i];
        const float min_logit = op.min_logit == nullptr ? -INFINITY : op.min_logit[parent];
        const auto p =
            static_cast<double>(token_probability(logit, op.inv_temperature, op.log_norm[parent], min_logit));
        const double threshold = fmin(op.epsilon, op.delta * exp(-static_cast<double>(op.entropies[parent])));
        // A missing candidate is its own parent.
        likelihood[i] = p > threshold && parent != op.first_row + i ? log(p) : refused;
    }
    __syncthreads();
    if (threadIdx.x != 0) return;
    likelihood[0] = 0;
    int best = 0, best_size = rows.ancestor_counts[op.first_row];
    for (int i = 1; i < op.nodes; ++i) {
        const double above = likelihood[rows.parents[op.first_row + i] - op.first_row];
        if (likelihood[i] == refused || above == refused) {
            likelihood[i] = refused;
            continue;
        }
        likelihood[i] += above;
        const int size = rows.ancestor_counts[op.first_row + i];  // increases with depth
        if (size < best_size || (size == best_size && !(likelihood[i] > likelihood[best]))) continue;
        best = i;
        best_size = size;
    }
    const int count = best_size - rows.ancestor_counts[op.first_row] + 1;
    for (int at = best, i = count - 1; i >= 0; --i) {
        op.path[i] = at;
        at = rows.parents[op.first_row + at] - op.first_row;
    }
    *op.count = count;
}

}  // namespace

void launch(std::span<const ListChildrenOp> ops, Float16Kind /*dtype*/, LaunchStream stream) {
    in_batches(ops, [&](const Many<ListChildrenOp>& many, unsigned count) {
        DS_LAUNCH(list_kernel, count, list_threads, 0, stream, many);
    });
}

void launch(std::span<const FollowAcceptedOp> ops, Float16Kind /*dtype*/, LaunchStream stream) {
    in_batches(ops, [&](const Many<FollowAcceptedOp>& many, unsigned count) {
        DS_LAUNCH(follow_accepted_kernel, count, 1, 0, stream, many);
    });
}

void launch(std::span<const AcceptTypicalOp> ops, Float16Kind /*dtype*/, LaunchStream stream) {
    in_batches(ops, [&](const Many<AcceptTypicalOp>& many, unsigned count) {
        DS_LAUNCH(accept_typical_kernel, count, typical_threads, 0, stream, many);
    });
}

void launch(std::span<const RerankOp> ops, Float16Kind /*dtype*/, LaunchStream stream) {
    in_batches(ops, [&](const Many<RerankOp>& many, unsigned count) {
        DS_LAUNCH(rerank_kernel, count, rerank_threads, 0, stream, many);
    });
}

void launch(std::span<const FollowArgmaxOp> ops, Float16Kind /*dtype*/, LaunchStream stream) {
    in_batches(ops, [&](const Many<FollowArgmaxOp>& many, unsigned count) {
        DS_LAUNCH_DEPENDENT(follow_argmax_kernel, count, warp_size, 0, stream, many);
    });
}

void launch(std::span<const BeamOp> ops, Float16Kind /*dtype*/, LaunchStream stream) {
    in_batches(ops, [&](const Many<BeamOp>& many, unsigned count) {
        DS_LAUNCH_DEPENDENT(beam_kernel, count, beam_threads, 0, stream, many);
    });
}

}  // namespace draftscope::kernels::cuda
