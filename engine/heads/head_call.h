#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "base/phase.h"
#include "base/units.h"
#include "engine/round/device_spans.h"
#include "kernels/backend.h"

/// Calls of LM heads. A level is enqueued without waiting, so that trees grow from level to level without the
/// host. Values that the host needs are downloaded and valid after the round's only Backend::synchronize().
namespace draftscope {

/// Per-sequence state of a head; empty for stateless heads.
class HeadState {
  public:
    virtual ~HeadState() = default;
};

/// The adjacent rows of one sequence in a call.
struct HeadSequence {
    HeadState* state = nullptr;  ///< null for stateless heads
    int index = 0;               ///< index of the sequence in the step, the same at all levels
    int first_row = 0, rows = 0;
    /// Receives the tokens that the rows can propose, ascending, and their number; null = not requested.
    TokenId* set = nullptr;  ///< [CallShape::set]; the head may store other values after the tokens
    std::int32_t* set_size = nullptr;
};

/// One draft level of a step, over the rows of all sequences. The caller holds Backend::submit_mutex().
struct HeadCall {
    kernels::Backend& backend;
    PhaseRecorder& phases;
    DeviceSpans& spans;
    int level = 0, rows = 0, k = 0;
    std::span<const HeadSequence> sequences;
    /// [rows, 2d], if the head reads them (HeadNeeds::inputs). The first half is the embedding of the token
    /// that a row starts from. The second is the drafter's hidden that it continues from (level 0 and path
    /// heads: the target's feature).
    const float* inputs = nullptr;
    kernels::Activations x = {};  ///< for propose(): the rows, [rows, padded_columns(d)]
    std::int32_t* downloads =
        nullptr;                  ///< [CallShape::downloads] values that the head downloads for collect()
    bool sets_requested = false;  ///< HeadSequence::set is also read outside the head
    /// For sampled drafts: receives the logits of all columns, [rows, support_stride], and of the results
    /// below only `tokens` is set. Rows with columns of their own also store their tokens, ascending, and
    /// their number if CallShape::counted.
    float* support_logits = nullptr;
    int support_stride = 0;
    std::int32_t* support_tokens = nullptr;
    std::int32_t* support_sizes = nullptr;
    double temperature = 0;  ///< of sampling; 0 = drafts are not sampled
    // Results: the k best of each row, as from MatmulTopKOp; missing candidates have id -1.
    std::int32_t* ids = nullptr;
    float* logits = nullptr;
    float* sums = nullptr;
    const std::int32_t* tokens = nullptr;  ///< set by propose(): token of each id; null = ids are tokens
};

/// Downloaded results of a call.
struct HeadReadback {
    DeviceSpans& spans;
    int level = 0, rows = 0;
    std::span<const HeadSequence> sequences;
    // For each sequence, if HeadNeeds::sets: all CallShape::set values at HeadSequence::set, and the number
    // of its tokens. The values are downloaded only if the step reports what the head covered; else they are
    // empty.
    std::span<const std::span<const TokenId>> sets;
    std::span<const std::int32_t> set_sizes;
    std::span<const std::int32_t> downloads;
};

/// Sizes of what a call stores. Of the logits that drafts are sampled from, each row has `support` of
/// `stride` columns.
struct CallShape {
    int stride = 0, support = 0;
    const TokenId* tokens = nullptr;  ///< token of each column; null = column i is token i
    bool per_row = false;             ///< instead, each row stores its own tokens
    bool counted = false;             ///< and their number, of which `support` is the maximum
    /// Capacity of HeadSequence::set for that many rows of one sequence; 0 = the tokens are known before the
    /// round.
    int set = 0;
    int downloads = 0;  ///< number of values at HeadCall::downloads
};

/// Columns of a head's logits at all levels. With `per_row`, rows or levels have different tokens.
struct SupportColumns {
    int stride = 0, support = 0;  ///< the maximum of any level
    bool per_row = false, counted = false;
};

/// Tokens that a head can propose.
struct ActiveSet {
    int all_below = 0;                  ///< tokens 0 to all_below - 1, if `ids` is empty
    std::span<const TokenId> ids = {};  ///< ascending
    bool has(TokenId token) const {
        return ids.empty() ? token >= 0 && token < all_below
                           : std::binary_search(ids.begin(), ids.end(), token);
    }
};

/// Returns the op that copies rows of `cols` 4-byte integers; copy_rows() preserves their bits.
inline kernels::CopyRowsOp copy_of_words(const std::int32_t* from, std::int64_t from_stride, int rows,
                                         int cols, std::int32_t* to, std::int64_t to_stride) {
    return {reinterpret_cast<const float*>(from), from_stride, nullptr, rows, cols,
            reinterpret_cast<float*>(to),         to_stride};
}

/// Enqueues the results of rows without candidates: ids -1, logits -inf. If drafts are sampled, the rows have
/// no columns.
void leave_no_candidates(HeadCall& call, int first_row, int rows);

}  // namespace draftscope
