#include <cmath>

#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/pick.cuh"

/// Top-k and top-p by radix selection on the logits: counts or weights above each digit give the digit of the
/// boundary. Weights are integers, so that threads may add them in any order.
namespace draftscope::kernels::cuda {
namespace {

constexpr int threads = pick_threads;
constexpr int warps = pick_warps;
using Amount = unsigned long long;

/// The first two digits have this many bits, the last one the remaining bits.
constexpr int digit_bits = 11;
constexpr int bins = 1 << digit_bits;
static_assert(bins == 2 * threads);  // two bins per thread
constexpr int last_bits = 32 - 2 * digit_bits;

/// An amount is added in three parts of this many bits, each by a 32-bit atomic. 2^18 additions do not
/// overflow.
constexpr int part_bits = 14, parts = 3;
static_assert(part_bits * parts == fixed_point_bits && (max_sample_columns >> (32 - part_bits)) <= 1);

struct Shared {
    unsigned sums[parts][bins];
    Amount totals[warps];
    int counts[warps];
    float maxima[warps];
    unsigned digit;
    Amount left, at_key;
    int column;
};

/// A boundary: the key of the last kept value, the amount of that key to keep, and its total amount.
struct Boundary {
    unsigned key;
    Amount left, at_key, all;
};

__device__ __forceinline__ void add(Shared& shared, unsigned digit, Amount amount) {
    for (int p = 0; p < parts; ++p) {
        const unsigned part = static_cast<unsigned>(amount >> (p * part_bits)) & ((1u << part_bits) - 1);
        if (part != 0) atomicAdd(&shared.sums[p][digit], part);
    }
}
__device__ __forceinline__ Amount bin_sum(const Shared& shared, int digit) {
    Amount sum = 0;
    for (int p = 0; p < parts; ++p) sum += static_cast<Amount>(shared.sums[p][digit]) << (p * part_bits);
    return sum;
}

/// Finds the keys, in descending order, that reach target(all) of amount(key, column, value) over the
/// columns. If `all` is 0, nothing is cut. Every thread of the block takes part and gets the same result.
template <typename AmountOf, typename TargetOf>
__device__ Boundary find_boundary(const float* x, int columns, Shared& shared, AmountOf amount,
                                  TargetOf target_of) {
    Boundary cut{};
    Amount target = 0;
    for (int level = 0; level < 3; ++level) {
        const int shift = level == 0 ? 32 - digit_bits : level == 1 ? last_bits : 0;
        const int bits = level == 2 ? last_bits : digit_bits;
        for (int d = static_cast<int>(threadIdx.x); d < parts * bins; d += threads)
            shared.sums[d / bins][d % bins] = 0;
        __syncthreads();
        for_columns(
            static_cast<int>(threadIdx.x), threads, columns, [&](int c) { return x[c]; },
            [&](int c, float value) {
                const std::uint32_t key = ordered(value);
                // At the first digit, no part of the key is known.
                if (level > 0 && key >> (shift + bits) != cut.key) return;
                const Amount added = amount(key, c, value);
                if (added != 0) add(shared, key >> shift & ((1u << bits) - 1), added);
            });
        __syncthreads();
        const int low = 2 * (threads - 1 - static_cast<int>(threadIdx.x));
        const Amount upper = bin_sum(shared, low + 1), lower = bin_sum(shared, low);
        Amount all = 0;
        const Amount above = block_before<warps>(upper + lower, shared.totals, all);
        if (level == 0) {
            cut.all = all;
            if (all == 0) return cut;  // uniform across the block
            target = target_of(all);
        }
        if (above < target && target <= above + upper + lower) {
            const bool first = target <= above + upper;
            shared.digit = static_cast<unsigned>(first ? low + 1 : low);
            shared.left = target - above - (first ? 0 : upper);
            shared.at_key = first ? upper : lower;
        }
        __syncthreads();
        cut.key = cut.key << bits | shared.digit;
        cut.left = target = shared.left;
        cut.at_key = shared.at_key;
    }
    __syncthreads();  // `shared` has been read before it is written again
    return cut;
}

/// Finds the n-th column with that key, n >= 1; at least n columns have it.
__device__ int nth_column(const float* x, int columns, unsigned key, Amount n, Shared& shared) {
    Amount seen = 0;
    for (int first = 0; first < columns && seen < n; first += threads) {
        const int c = first + static_cast<int>(threadIdx.x);
        const bool equal = c < columns && ordered(x[c]) == key;
        int all = 0;
        const int before = block_before<warps>(equal ? 1 : 0, shared.counts, all);
        if (equal && seen + static_cast<Amount>(before) + 1 == n) shared.column = c;
        seen += static_cast<Amount>(all);
    }
    __syncthreads();
    return shared.column;
}

/// One block per row.
__global__ void __launch_bounds__(threads) mask_kernel(const TopKTopPMaskOp op) {
    DS_SHARED(Shared, shared);
    const auto row = static_cast<std::int64_t>(blockIdx.x);
    const float* logits = op.logits + row * op.stride;
    const int vocab = op.sizes == nullptr ? op.vocab : op.sizes[row];
    unsigned key = 0;      // of the last value kept
    int last = vocab - 1;  // last column kept with that key
    if (op.top_k > 0 && op.top_k < vocab) {
        const Boundary cut = find_boundary(
            logits, vocab, shared, [](unsigned, int, float) { return Amount{1}; },
            [&](Amount) { return static_cast<Amount>(op.top_k); });
        key = cut.key;
        if (cut.left < cut.at_key) last = nth_column(logits, vocab, key, cut.left, shared);
    }
    if (op.top_p < 1) {
        const float max_value = block_largest<warps>(logits, vocab, shared.maxima);
        const auto units = [&](float value) {
            return Amount{fixed_point_weight(expf((value - max_value) * op.inv_temperature))};
        };
        const unsigned min_key = key;
        const int min_key_last = last;
        const Boundary cut = find_boundary(
            logits, vocab, shared,
            [&](unsigned k, int c, float value) {
                const bool in_top_k = k > min_key || (k == min_key && c <= min_key_last);
                return in_top_k ? units(value) : Amount{0};
            },
            [&](Amount all) {
                const auto target = static_cast<Amount>(ceil(op.top_p * static_cast<double>(all)));
                return target < 1 ? Amount{1} : target < all ? target : all;
            });
        if (cut.all > 0) {
            // Equal logits have equal weights.
            const Amount each = units(key_value(static_cast<std::uint64_t>(cut.key) << 32));
            const Amount count = (cut.left + each - 1) / each;
            if (cut.key > min_key) last = vocab - 1;
            if (count * each < cut.at_key) last = nth_column(logits, vocab, cut.key, count, shared);
            key = cut.key;
        } else {
            key = 0;
        }
    }
    if (threadIdx.x != 0) return;
    // Nothing is below a NaN.
    op.min_logit[row] = key == 0 ? -INFINITY : key_value(static_cast<std::uint64_t>(key) << 32);
    op.last_tied_id[row] = key == 0 ? vocab - 1 : last;
}

}  // namespace

void launch(const TopKTopPMaskOp& op, Float16Kind /*dtype*/, LaunchStream stream) {
    if (op.rows == 0) return;
    DS_LAUNCH(mask_kernel, static_cast<unsigned>(op.rows), threads, 0, stream, op);
}

}  // namespace draftscope::kernels::cuda
